package wire_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.PackageInstaller = (*capable)(nil)

func (*capable) CheckPackages(_ context.Context, language sdk.Language, requirements []string) error {
	if language == sdk.Python && !slices.Contains(requirements, "./here") {
		return nil
	}
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, "requirements", "%s: %s", language, strings.Join(requirements, " "))
}

func (*capable) InstallPackages(_ context.Context, req sdk.InstallPackagesRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, errors.Join(out.Stdout([]byte(strings.Join(req.Requirements, " "))), out.Stderr([]byte("warned")))
}

func TestPackagesCrossTheWire(t *testing.T) {
	c := connect(t, newCapable())
	assert.NilError(t, c.CheckPackages(t.Context(), sdk.Python, []string{"a"}))
	assert.Error(t, c.CheckPackages(t.Context(), sdk.Python, []string{"a", "./here"}), "SB010: requirements: python: a ./here")
	assert.Error(t, c.CheckPackages(t.Context(), sdk.Bash, nil), "SB010: requirements: bash: ")
	var out recorder
	req := sdk.InstallPackagesRequest{Requirements: []string{"a", "b==1"}, Timeout: time.Second, OutputLimit: 5}
	result, err := c.InstallPackages(t.Context(), req, &out)
	assert.NilError(t, err)
	assert.Equal(t, out.stdout.String(), "a b==")
	assert.Equal(t, out.stderr.String(), "warne")
	assert.Assert(t, result.Truncated)
}
