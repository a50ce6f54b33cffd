package api

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	pathHealthz = "/healthz"
	pathReadyz  = "/readyz"
)

const (
	tagExecute   = "execute"
	tagInstances = "instances"
	tagContexts  = "contexts"
	tagCommands  = "commands"
	tagFiles     = "files"
	tagPorts     = "ports"
	tagProviders = "providers"
	tagUsage     = "usage"
	tagAdmin     = "admin"
	tagBroker    = "broker"
)

// routes registers every route that there is.
func (s *Server) routes() {
	registerExecution(s, operation{
		method: http.MethodPost, path: "/api/v1/execute", id: "execute", tag: tagExecute,
		summary: "Run code",
		details: "Takes a fresh instance, or the session's if session_id is given, runs the code and destroys or keeps the instance. " +
			"What becomes of the code is data: an execution that was taken on answers 200, with its status. " +
			"A client that goes away cancels it.\n\n" +
			"With Accept: text/event-stream the same comes as events while it happens. What fails before the code starts is answered as usual.",
		success: []int{http.StatusOK},
		codes:   append(providerCodes(), sdk.CodeConflict, sdk.CodeNotAllowed),
	}, s.execute)
	register(s, operation{
		method: http.MethodPost, path: "/api/v1/instances", id: "createInstance", tag: tagInstances,
		summary: "Create an instance",
		details: "Answers 201 for a new instance and 200 for the one that the session already has on that provider. " +
			"A template, ttl or idle that differs from the session's instance is a conflict.",
		resumes: true,
		success: []int{http.StatusCreated, http.StatusOK},
		codes:   append(providerCodes(), sdk.CodeConflict, sdk.CodeNotAllowed),
	}, s.createInstance)
	register(s, operation{
		method: http.MethodGet, path: "/api/v1/instances", id: "listInstances", tag: tagInstances,
		summary: "List your instances",
		query: []parameter{
			{name: "label", multiple: true, doc: "Only those with this label, as name=value. Several must all be there."},
			{name: "session_id", doc: "Only those of this session."},
			{name: "provider", doc: "Only those of this provider."},
			{name: "limit", kind: integerParameter, least: 1, most: maxPage, doc: "At most so many; 100 unless given."},
			{name: "after", doc: "Only those behind this ID: next of the page before."},
		},
		success: []int{http.StatusOK},
	}, s.listInstances)
	register(s, operation{
		method: http.MethodGet, path: "/api/v1/instances/{id}", id: "getInstance", tag: tagInstances,
		summary: "Look at an instance",
		success: []int{http.StatusOK}, codes: []sdk.Code{sdk.CodeNotFound},
	}, s.getInstance)
	register(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/renew", id: "renewInstance", tag: tagInstances,
		summary: "Move the end of an instance",
		details: "Sets expires_at to ttl seconds from now, but not beyond the operator's maximum lifetime: the answer's expires_at says what was granted. " +
			"That may be earlier than before. It counts as a use for the idle limit. An instance whose time is over cannot be renewed; an accepted renewal is never cut short by an expiry that was due.",
		success: []int{http.StatusOK},
		codes:   []sdk.Code{sdk.CodeNotFound, sdk.CodeUnavailable},
	}, s.renewInstance)
	register(s, operation{
		method: http.MethodDelete, path: "/api/v1/instances/{id}", id: "destroyInstance", tag: tagInstances,
		summary: "Destroy an instance",
		details: "Executions in it are answered as cancelled. After an error the instance is out of use; try again, or leave it to the broker.",
		success: []int{http.StatusNoContent},
		codes:   append(providerCodes(), sdk.CodeNotFound),
	}, s.destroyInstance)
	s.lifecycleRoutes()
	s.portRoutes()
	s.packageRoutes()
	registerExecution(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/execute", id: "executeInInstance", tag: tagExecute,
		summary: "Run code in an instance",
		details: "As POST /api/v1/execute, in an instance that exists.",
		success: []int{http.StatusOK},
		codes:   append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
	}, s.executeInInstance)
	s.contextRoutes()
	s.commandRoutes()
	s.fileRoutes()
	register(s, operation{
		method: http.MethodDelete, path: "/api/v1/instances/{id}/executions/{execution}", id: "interruptExecution", tag: tagExecute,
		summary: "Interrupt an execution",
		details: "Does what Ctrl-C does in a terminal: Python raises KeyboardInterrupt, other programs get SIGINT. Code that still runs a second later is killed with all that it started. " +
			"It is answered when that has begun; the execution's own request is answered with the status cancelled and the output so far. Doing it again has no effect.",
		success: []int{http.StatusAccepted},
		codes:   []sdk.Code{sdk.CodeNotFound},
	}, s.interruptExecution)
	register(s, operation{
		method: http.MethodGet, path: "/api/v1/providers", id: "listProviders", tag: tagProviders,
		summary: "List the providers that you may use",
		success: []int{http.StatusOK},
	}, s.listProviders)
	s.usageRoutes()
	s.adminRoutes()
	s.configurationRoutes()
	register(s, operation{
		method: http.MethodGet, path: pathHealthz, id: "healthz", tag: tagBroker, public: true,
		summary: "Whether the process is alive",
		success: []int{http.StatusOK},
	}, s.healthz)
	register(s, operation{
		method: http.MethodGet, path: pathReadyz, id: "readyz", tag: tagBroker, public: true,
		summary: "Whether the broker takes work",
		details: "It does as long as the active provider or one of its fallback is ready, the audit log can be written and no shutdown has begun.",
		success: []int{http.StatusOK}, codes: []sdk.Code{sdk.CodeUnavailable},
	}, s.readyz)
	register(s, operation{
		method: http.MethodGet, path: "/openapi.json", id: "openapi", tag: tagBroker, public: true,
		summary: "This document",
		success: []int{http.StatusOK},
	}, func(context.Context, call[none]) (int, openAPIText, error) {
		return http.StatusOK, s.document.text, nil
	})
}

// providerCodes are what a provider may answer to nearly everything.
func providerCodes() []sdk.Code {
	return []sdk.Code{
		sdk.CodeNotInitialized, sdk.CodeConnectionFailed, sdk.CodeCreateFailed, sdk.CodeQuotaExceeded,
		sdk.CodeUnavailable, sdk.CodeNotSupported,
	}
}
