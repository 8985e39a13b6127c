"""Order, pack and stream: which items share a batch. Pure: no torch, no clock, no input or output."""
