"""Response models: how likely an answer is, given ability and item parameters."""
