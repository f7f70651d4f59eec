"""Canonical frames: geometry only, knows nothing of learning."""

from legoswarm.architecture import AXES as AXES
from legoswarm.architecture import RESTS as RESTS
from legoswarm.architecture import check_frame as check_frame
from legoswarm.frames.canonical import Frame as Frame
from legoswarm.frames.canonical import canonicalize as canonicalize
from legoswarm.frames.canonical import centroid_offset as centroid_offset
from legoswarm.frames.canonical import make_frame as make_frame
