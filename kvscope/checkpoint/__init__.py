"""An `EngineState` as compact opaque bytes, so that a seek need not fold from the first step."""

from kvscope.checkpoint.decoding import DecodedBase, check_checkpoint, decode_base, decode_checkpoint
from kvscope.checkpoint.encoding import CheckpointBase, encode_complete, encode_delta

__all__ = [
    "CheckpointBase",
    "DecodedBase",
    "check_checkpoint",
    "decode_base",
    "decode_checkpoint",
    "encode_complete",
    "encode_delta",
]
