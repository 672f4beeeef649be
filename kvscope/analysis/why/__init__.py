"""Why a request waited, was preempted, missed the prefix cache, was slow: answers from recorded facts, with figures.

Pure functions over a timeline that return frozen records; `report` turns them into sentences for a screen or a command.
"""

from kvscope.analysis.why.answer import WhyAnswer, explain
from kvscope.analysis.why.overview import Overview, overview

__all__ = ["Overview", "WhyAnswer", "explain", "overview"]
