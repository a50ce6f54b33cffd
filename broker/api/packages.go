package api

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// InstallPackagesRequest installs packages in an instance.
type InstallPackagesRequest struct {
	Language     string   `json:"language" minLength:"1" maxLength:"64" doc:"As in POST /api/v1/execute." example:"python"`
	Requirements []string `json:"requirements" nullable:"false" minItems:"1" maxItems:"200" doc:"Names of packages, with versions maybe, as the installer of the language takes them." example:"[\"numpy\", \"requests>=2\"]"`
	Timeout      float64  `json:"timeout,omitempty" exclusiveMinimum:"0" doc:"Seconds that the installation may take. The operator sets the maximum, which is also the default."`
}

func (s *Server) packageRoutes() {
	register(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/packages", id: "installPackages", tag: tagInstances,
		summary: "Install packages",
		details: "They stay for the life of the instance. What becomes of the installation is data, as with code: it answers 200 with a status, " +
			"and if that is not succeeded, stderr begins with \"Failed to install requirements: \". " +
			"Where the operator has not allowed it, it is refused with SB015.",
		success: []int{http.StatusOK}, codes: append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
	}, s.installPackages)
}

func (s *Server) installPackages(ctx context.Context, c call[InstallPackagesRequest]) (int, Execution, error) {
	execution, err := s.instances.Install(ctx, c.tenant, c.id, instance.InstallRequest{
		Language: c.body.Language, Requirements: c.body.Requirements, Timeout: duration(c.body.Timeout),
	})
	if err != nil {
		return 0, Execution{}, err
	}
	return http.StatusOK, executionOf(execution), nil
}
