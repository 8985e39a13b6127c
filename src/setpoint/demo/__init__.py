"""The main job on real text with an embedded model: nothing to prepare, nothing to download."""
