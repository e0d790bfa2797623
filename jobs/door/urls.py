"""The addresses of the doors."""

from django.urls import URLPattern, path, re_path

from . import api
from .dialects import anthropic, openai

api_patterns: list[URLPattern] = [
    path("model-routes/", api.ModelRouteList.as_view()),
    path("model-routes/<uuid:pk>/", api.ModelRouteDetail.as_view()),
]
openai_patterns: list[URLPattern] = [
    path("files", openai.Files.as_view()),
    path("files/<str:name>", openai.File.as_view()),
    path("files/<str:name>/content", openai.FileContent.as_view()),
    path("batches", openai.Batches.as_view()),
    path("batches/<str:name>", openai.BatchOf.as_view()),
    path("batches/<str:name>/cancel", openai.CancelBatchOf.as_view()),
    path("chat/completions", openai.OpenAiCall.as_view(endpoint="/v1/chat/completions")),
    path("embeddings", openai.OpenAiCall.as_view(endpoint="/v1/embeddings")),
    path("moderations", openai.OpenAiCall.as_view(endpoint="/v1/moderations")),
    path("responses", openai.OpenAiCall.as_view(endpoint="/v1/responses")),
    path("responses/<str:name>", openai.ResponseOf.as_view()),
    path("responses/<str:name>/cancel", openai.CancelResponse.as_view()),
    path("answers/<uuid:pk>", openai.AnswerOfCall.as_view()),
    path("models", openai.Models.as_view()),
    path("models/<path:name>", openai.ModelOf.as_view()),
    re_path(r"", openai.NotHere.as_view()),
]
anthropic_patterns: list[URLPattern] = [
    path("messages", anthropic.Messages.as_view()),
    path("messages/batches", anthropic.MessageBatches.as_view()),
    path("messages/batches/<str:name>", anthropic.MessageBatchOf.as_view()),
    path("messages/batches/<str:name>/cancel", anthropic.CancelMessageBatch.as_view()),
    path("messages/batches/<str:name>/results", anthropic.MessageBatchResults.as_view()),
    path("answers/<uuid:pk>", anthropic.AnswerOfMessage.as_view()),
    path("models", anthropic.ClaudeModels.as_view()),
    path("models/<path:name>", anthropic.ClaudeModelOf.as_view()),
    re_path(r"", anthropic.NotAtAnthropics.as_view()),
]
