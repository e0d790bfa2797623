"""Forecasts: when work will end and what it will cost, before it is submitted and while it goes."""

from jobs.feature import Feature

FORECAST = Feature(
    package="jobs.features.forecast",
    page="how-to/forecast.md",
    addresses={"forecast/": "api.ForecastBatch"},
)
