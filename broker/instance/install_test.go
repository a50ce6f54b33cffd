package instance_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// shelf installs everything but what is called broken.
type shelf struct {
	mu        sync.Mutex
	installed []string
}

func (s *shelf) install(_ context.Context, req sdk.InstallPackagesRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(req.Requirements, "broken") {
		_ = out.Stdout([]byte("Collecting broken\n"))
		_ = out.Stderr([]byte("Failed to install requirements: no broken\n"))
		return sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1}, nil
	}
	s.installed = append(s.installed, string(req.Language)+" "+strings.Join(req.Requirements, " "))
	return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
}

func TestRequirementsAreInstalledOnceBeforeTheCode(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		var shelf shelf
		first.OnInstall = shelf.install
		run := func(session string, requirements ...string) instance.Execution {
			t.Helper()
			e, err := s.Run(t.Context(), acme, instance.RunRequest{Session: session, ExecuteRequest: instance.ExecuteRequest{Language: "python", Code: "1", Requirements: requirements}})
			assert.NilError(t, err)
			return e
		}
		run("s1", "a", "b")
		e := run("s1", "b", "a", "b")
		run("s1", "a")
		run("s2", "a")
		assert.DeepEqual(t, shelf.installed, []string{"python a b", "python a", "python a"})
		assert.Equal(t, len(first.Executions()), 4)

		failed := run("s1", "broken")
		assert.Check(t, is.Equal(failed.Result.Status, sdk.StatusFailed))
		assert.Check(t, is.Equal(failed.Result.ExitCode, 1))
		assert.Check(t, is.Equal(string(failed.Stdout), ""))
		assert.Check(t, is.Equal(string(failed.Stderr), "Failed to install requirements: no broken\n"))
		assert.Check(t, is.Equal(failed.InstanceID, e.InstanceID))
		assert.Check(t, is.Equal(len(first.Executions()), 4), "the code has not run")

		again, err := s.Install(t.Context(), acme, e.InstanceID, instance.InstallRequest{Language: "py", Requirements: []string{"a"}})
		assert.NilError(t, err)
		assert.Check(t, is.Equal(again.Result.Status, sdk.StatusSucceeded))
		assert.Check(t, is.Len(shelf.installed, 4), "who asks for an installation gets one")
	})
}

func TestAnInstanceIsCreatedWithItsRequirementsOrNotAtAll(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		var shelf shelf
		first.OnInstall = shelf.install
		_, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Template: "nodejs", Requirements: []string{"a"}})
		assert.NilError(t, err)
		assert.Check(t, created)
		assert.DeepEqual(t, shelf.installed, []string{"javascript a"})
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "s", Requirements: []string{"broken"}})
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
		assert.ErrorContains(t, err, "Failed to install requirements: no broken")
		assert.Equal(t, len(s.List(acme, instance.ListRequest{Limit: 10}).Instances), 1, "the other is gone")
	})
}

func TestNothingIsCreatedWherePackagesCannotBeInstalled(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		_, err := s.Run(t.Context(), acme, instance.RunRequest{ExecuteRequest: instance.ExecuteRequest{Language: "python", Code: "1", Requirements: []string{"a"}}})
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported})
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Requirements: []string{"a"}})
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported})
		assert.Equal(t, len(first.Created()), 0)
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		_, err = s.Install(t.Context(), acme, info.ID.String(), instance.InstallRequest{Language: "python", Requirements: []string{"a"}})
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported})
		for _, requirement := range []string{"", "-r x", "a\nb", strings.Repeat("x", 300)} {
			_, err = s.Install(t.Context(), acme, info.ID.String(), instance.InstallRequest{Language: "python", Requirements: []string{requirement}})
			assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
		}
	})
}

func TestTheProviderIsAskedBeforeAnythingIsMade(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		var shelf shelf
		first.OnInstall = shelf.install
		first.OnCheckPackages = func(_ context.Context, language sdk.Language, requirements []string) error {
			if language == sdk.JavaScript {
				return sdk.Errorf(sdk.CodeNotSupported, "there is no registry")
			}
			if slices.Contains(requirements, "./here") {
				return sdk.FieldErrorf(sdk.CodeInvalidRequest, "requirements", "must be names")
			}
			return nil
		}
		for code, req := range map[sdk.Code]instance.CreateRequest{
			sdk.CodeNotSupported:   {Template: "nodejs", Requirements: []string{"a"}},
			sdk.CodeInvalidRequest: {Language: "python", Requirements: []string{"./here"}},
		} {
			_, _, err := s.Create(t.Context(), acme, req)
			assert.ErrorIs(t, err, &sdk.Error{Code: code})
			language := "python"
			if req.Template != "" {
				language = "javascript"
			}
			_, err = s.Run(t.Context(), acme, instance.RunRequest{ExecuteRequest: instance.ExecuteRequest{Language: language, Code: "1", Requirements: req.Requirements}})
			assert.ErrorIs(t, err, &sdk.Error{Code: code})
		}
		assert.Equal(t, len(first.Created()), 0)

		first.OnCheckPackages = func(ctx context.Context, _ sdk.Language, _ []string) error {
			<-ctx.Done()
			return ctx.Err()
		}
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Requirements: []string{"a"}})
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
		assert.ErrorContains(t, err, "no answer within 10s")
	})
}

func TestRequirementsAreOfTheLanguageOfTheContext(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		var shelf shelf
		first.OnInstall = shelf.install
		known := true
		first.OnListContexts = func(context.Context, string) ([]sdk.CodeContext, error) {
			if !known {
				return nil, sdk.Errorf(sdk.CodeNotFound, "no such instance")
			}
			return []sdk.CodeContext{{ID: "python-1", Language: sdk.Python}, {ID: "javascript-1", Language: sdk.JavaScript}}, nil
		}
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		run := func(contextID string) error {
			_, err := s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{ContextID: contextID, Code: "1", Requirements: []string{"a"}})
			return err
		}
		assert.NilError(t, run("javascript-1"))
		assert.DeepEqual(t, shelf.installed, []string{"javascript a"})
		err = run("none")
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
		assert.ErrorContains(t, err, "no such context")
		_, err = s.Get(t.Context(), acme, info.ID.String())
		assert.NilError(t, err)
		known = false
		assert.ErrorContains(t, run("python-1"), "no such instance")
		_, err = s.Get(t.Context(), acme, info.ID.String())
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
	})
}

// Who was told of an instance keeps it, whatever becomes of what another asked of it.
func TestAnInstallationThatFailsTakesNobodyElsesInstance(t *testing.T) {
	for name, joins := range map[string]bool{"alone": false, "with another": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				installing := make(chan struct{})
				first.OnInstall = func(context.Context, sdk.InstallPackagesRequest, sdk.Output) (sdk.ExecuteResult, error) {
					<-installing
					return sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1}, nil
				}
				var group sync.WaitGroup
				group.Go(func() {
					_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1", Language: "python", Requirements: []string{"broken"}})
					assert.Check(t, err != nil)
				})
				synctest.Wait()
				if joins {
					_, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
					assert.NilError(t, err)
					assert.Check(t, !created)
				}
				close(installing)
				group.Wait()
				synctest.Wait()
				assert.Equal(t, len(first.Live()) == 1, joins)
			})
		})
	}
}

func TestAnInterruptEndsAnInstallation(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		began := make(chan struct{})
		first.OnInterrupt = func(context.Context, string, string) error { return sdk.Errorf(sdk.CodeNotFound, "no such execution") }
		first.OnInstall = func(ctx context.Context, _ sdk.InstallPackagesRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
			close(began)
			<-ctx.Done()
			return sdk.ExecuteResult{}, ctx.Err()
		}
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		var execution instance.Execution
		var group sync.WaitGroup
		group.Go(func() {
			execution, err = s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{ID: "mine", Language: "python", Code: "1", Requirements: []string{"a"}})
		})
		<-began
		assert.NilError(t, s.Interrupt(t.Context(), acme, info.ID.String(), "mine"))
		group.Wait()
		assert.NilError(t, err)
		assert.Check(t, is.Equal(execution.Result.Status, sdk.StatusCancelled))
		assert.Check(t, is.Len(first.Executions(), 0))
	})
}
