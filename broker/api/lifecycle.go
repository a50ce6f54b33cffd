package api

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func (s *Server) lifecycleRoutes() {
	register(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/pause", id: "pauseInstance", tag: tagInstances,
		summary: "Freeze an instance",
		details: "Its processes stop where they are; memory and files stay, and so does its time limit. It takes no executions until it is resumed. Pausing a paused instance changes nothing.",
		success: []int{http.StatusOK}, codes: append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
	}, s.pauseInstance)
	register(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/resume", id: "resumeInstance", tag: tagInstances,
		summary: "Let a frozen instance go on",
		success: []int{http.StatusOK}, codes: append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
	}, s.resumeInstance)
	s.metricsRoutes()
}

func (s *Server) pauseInstance(ctx context.Context, c call[none]) (int, Instance, error) {
	info, err := s.instances.Pause(ctx, c.tenant, c.id)
	if err != nil {
		return 0, Instance{}, err
	}
	return http.StatusOK, instanceOf(info), nil
}

func (s *Server) resumeInstance(ctx context.Context, c call[none]) (int, Instance, error) {
	info, err := s.instances.Resume(ctx, c.tenant, c.id)
	if err != nil {
		return 0, Instance{}, err
	}
	return http.StatusOK, instanceOf(info), nil
}
