"""Write the lists of cases in CONTRACT.md anew."""

from queen_sync.conformance.contract import CONTRACT, docstrings, proofs, rewritten

if __name__ == "__main__":
    CONTRACT.write_text(rewritten(CONTRACT.read_text("utf-8"), proofs(docstrings())), "utf-8")
