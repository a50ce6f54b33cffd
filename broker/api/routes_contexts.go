package api

import (
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// contextRoutes registers what belongs to the capability "contexts". Code runs in
// a context by executeInInstance.
func (s *Server) contextRoutes() {
	const all, one = "/api/v1/instances/{id}/contexts", "/api/v1/instances/{id}/contexts/{context}"
	codes := append(providerCodes(), sdk.CodeNotFound)
	register(s, operation{
		method: http.MethodPost, path: all, id: "createContext", tag: tagContexts,
		summary: "Make a context",
		details: "Starts an interpreter that keeps variables, imports and open files from one execution to the next, and answers when it can run code: " +
			"POST /api/v1/instances/{id}/execute with its ID as context_id. The context ends with the instance.",
		success: []int{http.StatusCreated}, codes: codes,
	}, s.createContext)
	register(s, operation{
		method: http.MethodGet, path: all, id: "listContexts", tag: tagContexts,
		summary: "List the contexts of an instance",
		success: []int{http.StatusOK}, codes: codes,
	}, s.listContexts)
	register(s, operation{
		method: http.MethodGet, path: one, id: "getContext", tag: tagContexts,
		summary: "Look at a context",
		success: []int{http.StatusOK}, codes: codes,
	}, s.getContext)
	register(s, operation{
		method: http.MethodPost, path: one + "/restart", id: "restartContext", tag: tagContexts,
		summary: "Restart a context",
		details: "Ends what runs in it, which is answered as cancelled, and forgets its state. Its ID, language, directory and environment stay.",
		success: []int{http.StatusNoContent}, codes: codes,
	}, s.restartContext)
	register(s, operation{
		method: http.MethodDelete, path: one, id: "deleteContext", tag: tagContexts,
		summary: "Delete a context",
		details: "Ends what runs in it, which is answered as cancelled.",
		success: []int{http.StatusNoContent}, codes: codes,
	}, s.deleteContext)
}
