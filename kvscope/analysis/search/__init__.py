"""Searches a recording: requests, prompts and outputs, tokens, blocks, hashes, events, reasons, regular expressions."""

from kvscope.analysis.search.around import Reached, search_around
from kvscope.analysis.search.hit import Hit
from kvscope.analysis.search.query import Query, SearchError, parse_query
from kvscope.analysis.search.run import search

__all__ = ["Hit", "Query", "Reached", "SearchError", "parse_query", "search", "search_around"]
