"""What a batch will cost, fitted to measurements, never assumed."""
