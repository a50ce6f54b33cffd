package provider_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// ways are those in which code runs.
func ways() map[string]func(t *testing.T, p *provider.Provider, id string) sdk.ExecuteRequest {
	inContext := func(t *testing.T, p *provider.Provider, id string, language sdk.Language, code string) sdk.ExecuteRequest {
		t.Helper()
		made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: language})
		assert.NilError(t, err)
		req := request(id, language, code)
		req.ContextID = made.ID
		return req
	}
	return map[string]func(t *testing.T, p *provider.Provider, id string) sdk.ExecuteRequest{
		"in a process": func(_ *testing.T, _ *provider.Provider, id string) sdk.ExecuteRequest {
			return request(id, sdk.Python, "print('ready', flush=True)\nimport time; time.sleep(98765)")
		},
		"in a context": func(t *testing.T, p *provider.Provider, id string) sdk.ExecuteRequest {
			t.Helper()
			return inContext(t, p, id, sdk.Python, "print('ready', flush=True)\nimport time; time.sleep(98765)")
		},
		"in a context, with arguments and files": func(t *testing.T, p *provider.Provider, id string) sdk.ExecuteRequest {
			t.Helper()
			req := inContext(t, p, id, sdk.Python, "def main():\n    print('ready', flush=True)\n    import time; time.sleep(98765)")
			req.Arguments, req.Artifacts = []byte("{}"), &sdk.ArtifactLimits{MaxCount: 1, MaxBytes: 1, MaxTotalBytes: 1}
			return req
		},
		"in a kernel of its own": func(_ *testing.T, _ *provider.Provider, id string) sdk.ExecuteRequest {
			return request(id, sdk.TypeScript, "console.log('ready'); await new Promise(r => setTimeout(r, 98765))")
		},
	}
}

// The broker runs code again that was not begun, and no other.
func TestOnlyCodeThatWasNotBegunIsSaidToHaveHadNoEffect(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	for name, way := range ways() {
		t.Run(name+", gone before", func(t *testing.T) {
			p := configured(t, server, nil)
			req := way(t, p, create(t, p))
			server.Expire(req.InstanceID)
			for range 2 { // once it is believed to be there, once it is known to be gone
				_, err := p.Execute(t.Context(), req, &heard{})
				assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
				assert.Check(t, knownToBeWithoutEffect(err), "%v", err)
			}
		})
		t.Run(name+", gone meanwhile", func(t *testing.T) {
			p := configured(t, server, nil)
			req := way(t, p, create(t, p))
			var out heard
			ended := make(chan error, 1)
			go func() {
				_, err := p.Execute(t.Context(), req, &out)
				ended <- err
			}()
			poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Contains(out.out(), "ready")) }, poll.WithTimeout(2*time.Minute))
			server.Expire(req.InstanceID)
			err := <-ended
			assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
			assert.Check(t, !knownToBeWithoutEffect(err), "%v", err)
		})
	}
}

func TestCodeWhoseStartIsNotAnsweredMayHaveRun(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	inject(server, []string{"POST /process.Process/Start"}, e2bfake.Fault{Reset: true}, 0)
	server.Expire(id)
	_, err := p.Execute(t.Context(), request(id, sdk.Bash, "true"), &heard{})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
	assert.Check(t, !knownToBeWithoutEffect(err), "%v", err)
}

func TestAContextThatIsDeletedUnderItsCodeIsNotSaidToBeUnknown(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	req := ways()["in a context"](t, p, create(t, p))
	var out heard
	ended := make(chan error, 1)
	go func() {
		_, err := p.Execute(t.Context(), req, &out)
		ended <- err
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Contains(out.out(), "ready")) }, poll.WithTimeout(2*time.Minute))
	assert.NilError(t, p.DeleteContext(t.Context(), req.InstanceID, req.ContextID))
	assert.ErrorIs(t, <-ended, &sdk.Error{Code: sdk.CodeUnavailable})
	_, err := p.Execute(t.Context(), req, &out)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
}
