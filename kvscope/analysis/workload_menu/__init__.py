"""Workloads to send to a running engine, fitted to its settings, and what they would bring about there.

`workload` says what a workload is, `kinds` has the four of the menu, `rehearsal` runs one through the scheduler without
a model, `fitted` joins them for an engine.
"""

from kvscope.analysis.workload_menu.fitted import FittedWorkload, Forecast
from kvscope.analysis.workload_menu.kinds import WORKLOADS, find_workload
from kvscope.analysis.workload_menu.rehearsal import Rehearsal, rehearse
from kvscope.analysis.workload_menu.words import foretold
from kvscope.analysis.workload_menu.workload import Figure, FigureError, Workload

__all__ = [
    "WORKLOADS",
    "Figure",
    "FigureError",
    "FittedWorkload",
    "Forecast",
    "Rehearsal",
    "Workload",
    "find_workload",
    "foretold",
    "rehearse",
]
