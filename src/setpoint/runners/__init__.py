"""Everything that can be given a batch and asked for an answer, behind one protocol."""
