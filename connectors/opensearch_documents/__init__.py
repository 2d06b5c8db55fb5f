"""The document store past one machine (adr/0026): lowering, mapping, search, wire and the store itself change together."""

from connectors.opensearch_documents.store import OpenSearchDocuments
from connectors.opensearch_documents.wire import Place

__all__ = ["OpenSearchDocuments", "Place"]
