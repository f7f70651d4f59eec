"""Canonical frames: geometry only, knows nothing of learning."""

from legoswarm.frames.canonical import AXES as AXES
from legoswarm.frames.canonical import RESTS as RESTS
from legoswarm.frames.canonical import Frame as Frame
from legoswarm.frames.canonical import canonicalize as canonicalize
from legoswarm.frames.canonical import centroid_offset as centroid_offset
from legoswarm.frames.canonical import check_frame as check_frame
from legoswarm.frames.canonical import make_frame as make_frame
