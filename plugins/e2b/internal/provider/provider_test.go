package provider_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestSettingsThatCannotBeAreRefusedByName(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	for name, c := range map[string]struct {
		settings map[string]any
		field    string
	}{
		"a key that is refused":            {map[string]any{"api_key": "e2b_wrong_key"}, "api_key"},
		"a template that the broker lacks": {map[string]any{"templates": map[string]string{"ruby": "x"}}, "templates"},
		"a template without a name":        {map[string]any{"templates": map[string]string{"python": ""}}, "templates"},
		"two hosts in one":                 {map[string]any{"allowed_hosts": []string{"a.example, b.example"}}, "allowed_hosts"},
		"hosts without the Internet":       {map[string]any{"allow_internet": false, "allowed_hosts": []string{"a.example"}}, "allowed_hosts"},
	} {
		t.Run(name, func(t *testing.T) {
			p := provider.NewImpatient(hclog.NewNullLogger()).(*provider.Provider)
			defer func() { assert.Check(t, p.Close(t.Context())) }()
			err := configure(t, p, server, "b", c.settings)
			e, ok := errors.AsType[*sdk.Error](err)
			assert.Assert(t, ok, "%v", err)
			assert.Equal(t, e.Code, sdk.CodeInvalidConfig)
			assert.Equal(t, e.Field, c.field)
			assert.Check(t, !strings.Contains(err.Error(), "e2b_wrong_key"))
		})
	}
}

func TestEveryGenerationOfServersWorks(t *testing.T) {
	t.Parallel()
	for name, routes := range map[string]e2bfake.Routes{"both": e2bfake.AllRoutes, "the old": e2bfake.OldRoutes, "the new": e2bfake.NewRoutes} {
		t.Run(name, func(t *testing.T) {
			p := configured(t, cloud(t, e2bfake.Options{Routes: routes}), map[string]any{"max_retries": int64(0)})
			id := create(t, p)
			assert.NilError(t, p.Pause(t.Context(), id))
			assert.NilError(t, p.Resume(t.Context(), id))
			assert.Equal(t, bash(t, p, id, "echo hello"), "hello\n")
		})
	}
}

func TestATemplateThatE2BLacksIsTold(t *testing.T) {
	t.Parallel()
	p := configured(t, cloud(t, e2bfake.Options{}), map[string]any{"templates": map[string]string{"bash": "no-such-template"}})
	create(t, p)
	_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "bash"})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidConfig})
}

func TestANewProcessFindsTheSandboxes(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	req := sdk.CreateRequest{
		Template: "nodejs", Labels: map[string]string{"session": "s"}, Env: map[string]string{"A": "it's $HOME"}, IdempotencyKey: "key", TTL: time.Hour,
	}
	before := configured(t, server, nil)
	made, err := before.Create(t.Context(), req)
	assert.NilError(t, err)
	assert.NilError(t, before.Close(t.Context()))

	after := configured(t, server, nil)
	again, err := after.Create(t.Context(), req)
	assert.NilError(t, err)
	assert.Equal(t, again.ID, made.ID, "the key is known")
	assert.Equal(t, again.Template, "nodejs")
	assert.DeepEqual(t, again.Labels, made.Labels)
	assert.Equal(t, bash(t, after, made.ID, `printf %s "$A"`), "it's $HOME")
	context, err := after.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: made.ID, Language: sdk.Python})
	assert.NilError(t, err, "the token for ports is known")
	assert.NilError(t, after.DeleteContext(t.Context(), made.ID, context.ID))
	assert.Equal(t, server.Created(), 1)

	other := provider.NewImpatient(hclog.NewNullLogger()).(*provider.Provider)
	defer func() { assert.Check(t, other.Close(t.Context())) }()
	assert.NilError(t, configure(t, other, server, "another", nil))
	_, err = other.Execute(t.Context(), request(made.ID, sdk.Bash, "true"), &heard{})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound}, "it belongs to another broker")
}

func TestALeaseIsRenewedUntilTheDeadline(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, map[string]any{"timeout": "60s"})
	id := create(t, p)
	// A renewal that is lost is made up for.
	inject(server, []string{"POST /sandboxes/*/timeout"}, e2bfake.Fault{Status: 503}, 1)
	server.Shorten(id, 30*time.Second)
	p.BelieveLeft(id, 30*time.Second)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if left := server.Left(id); left < 50*time.Second {
			return poll.Continue("%v are left", left)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

func TestASandboxWhoseTimeIsOverIsForgottenAndFoundAgain(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	p.BelieveLeft(id, -2*time.Minute)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if p.Knows(id) {
			return poll.Continue("it is known")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.Equal(t, bash(t, p, id, "echo hello"), "hello\n", "it was there all the time")
}

func TestARepeatedOutputIsNotTakenForAFrame(t *testing.T) {
	t.Parallel()
	p := configured(t, cloud(t, e2bfake.Options{}), nil)
	id := create(t, p)
	// The environment of the supervisor, which has the marker, is nobody's business.
	found := bash(t, p, id, `for p in /proc/[0-9]*; do tr '\0' '\n' <$p/environ 2>/dev/null; done | grep -a '^SANDBOX_REQUEST' || echo hidden`)
	assert.Equal(t, found, "hidden\n")
	var out heard
	result, err := p.Execute(t.Context(), request(id, sdk.Python, `print("__run_0123:e30=;")`), &out)
	assert.NilError(t, err)
	assert.Equal(t, result.Status, sdk.StatusSucceeded)
	assert.Check(t, is.Equal(out.out(), "__run_0123:e30=;\n"))
}

func TestMuchCodeIsStoredBeforeItRuns(t *testing.T) {
	t.Parallel()
	p := configured(t, cloud(t, e2bfake.Options{}), nil)
	id := create(t, p)
	var noise strings.Builder // which does not become smaller
	for i := range 60_000 {
		noise.WriteString(time.Unix(int64(i*i), 0).UTC().Format("# 20060102150405\n"))
	}
	var out heard
	result, err := p.Execute(t.Context(), request(id, sdk.Python, noise.String()+"print('hello')"), &out)
	assert.NilError(t, err)
	assert.Equal(t, result.Status, sdk.StatusSucceeded, "%s", out.stderr.String())
	assert.Equal(t, out.out(), "hello\n")
	assert.Equal(t, bash(t, p, id, "ls -A /tmp | grep -c sandbox; true"), "1\n", "only the script that looks")
}
