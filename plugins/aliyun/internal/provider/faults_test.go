package provider_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/aliyunfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// configure makes a provider of a service; what it returns is the error of Configure.
func configure(t *testing.T, values map[string]any, stateDir string) (*provider.Provider, error) {
	t.Helper()
	p := provider.New(hclog.NewNullLogger()).(*provider.Provider)
	settings, problems := p.Describe().Schema.Resolve(values)
	assert.Equal(t, len(problems), 0, "%v", problems)
	t.Cleanup(func() { assert.Check(t, p.Close(context.Background())) })
	return p, p.Configure(t.Context(), sdk.ConfigureRequest{Label: "aliyun", BrokerID: "broker", StateDir: stateDir, Settings: settings})
}

func configured(t *testing.T, cloud *aliyunfake.Cloud) *provider.Provider {
	t.Helper()
	p, err := configure(t, given(cloud), t.TempDir())
	assert.NilError(t, err)
	return p
}

type heard struct {
	mu             sync.Mutex
	stdout, stderr bytes.Buffer
}

func (h *heard) Stdout(p []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stdout.Write(p)
	return nil
}

func (h *heard) Stderr(p []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stderr.Write(p)
	return nil
}
func (h *heard) Artifact(sdk.Artifact) error { return nil }

func run(t *testing.T, p *provider.Provider, id, code string) (sdk.ExecuteResult, string, error) {
	t.Helper()
	var out heard
	result, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, ExecutionID: "x", Language: sdk.Python, Code: code, Timeout: 2 * time.Minute, OutputLimit: 1 << 20}, &out)
	return result, out.stdout.String(), err
}

// The code counts how often it runs.
const counts = "open('runs', 'a').write('x')\nprint(len(open('runs').read()))\n"

const gateway = "<html><body>502 Bad Gateway</body></html>"

func TestWhateverTheServiceDoesAboutACreation(t *testing.T) {
	t.Parallel()
	good := sdk.Code("")
	for name, test := range map[string]struct {
		fault aliyunfake.Fault
		want  sdk.Code
	}{
		"the answer is lost after the effect":            {aliyunfake.Fault{Action: "CreateSandbox", After: true}, good},
		"it fails with 500 after the effect":             {aliyunfake.Fault{Action: "CreateSandbox", After: true, Status: 500, Body: gateway}, good},
		"it fails with 503 before":                       {aliyunfake.Fault{Action: "CreateSandbox", Status: 503}, good},
		"the answer is cut":                              {aliyunfake.Fault{Action: "CreateSandbox", Half: true}, good},
		"it is throttled, and says so with 400":          {aliyunfake.Fault{Action: "CreateSandbox", Status: 400, Body: `{"Code":"Throttling.User","Message":"slow"}`}, good},
		"it is throttled for a minute":                   {aliyunfake.Fault{Action: "CreateSandbox", Status: 429, Header: map[string]string{"Retry-After": "60"}}, sdk.CodeQuotaExceeded},
		"the quota is used up":                           {aliyunfake.Fault{Action: "CreateSandbox", Times: 9, Status: 403, Body: `{"code":"QuotaExceeded.Sandbox"}`, Header: map[string]string{"Retry-After": "60"}}, sdk.CodeQuotaExceeded},
		"a failure comes with HTTP 200":                  {aliyunfake.Fault{Action: "CreateSandbox", Status: 200, Body: `{"code":"ERR_VALIDATION_FAILED","message":"no"}`}, sdk.CodeCreateFailed},
		"the token has expired":                          {aliyunfake.Fault{Action: "CreateSandbox", Status: 403, Body: `{"code":"InvalidSecurityToken.Expired"}`}, sdk.CodeConnectionFailed},
		"it points elsewhere":                            {aliyunfake.Fault{Action: "CreateSandbox", Status: 307, Redirect: "http://127.0.0.1:1/"}, sdk.CodeCreateFailed},
		"the key is unknown, with 404":                   {aliyunfake.Fault{Action: "GetTemplate", Status: 404, Body: `{"Code":"InvalidAccessKeyId.NotFound"}`}, sdk.CodeConnectionFailed},
		"the code of a failure is a number":              {aliyunfake.Fault{Action: "GetTemplate", Status: 400, Body: `{"Code":17,"Message":"odd"}`}, sdk.CodeCreateFailed},
		"the template is made but the answer is lost":    {aliyunfake.Fault{Action: "CreateTemplate", After: true}, good},
		"the template exists, with 500":                  {aliyunfake.Fault{Action: "CreateTemplate", After: true, Status: 500, Body: `{"code":"ERR_INTERNAL_SERVER_ERROR","message":"already exists"}`}, good},
		"the template exists, with 400":                  {aliyunfake.Fault{Action: "CreateTemplate", After: true, Status: 400, Body: `{"code":"ERR_BAD_REQUEST","message":"already exists"}`}, good},
		"the disk of the service is full":                {aliyunfake.Fault{Action: "CreateSandbox", Status: 507}, sdk.CodeCreateFailed},
		"the service is down for long":                   {aliyunfake.Fault{Action: "CreateSandbox", Times: 99, Status: 502, Body: gateway}, sdk.CodeUnavailable},
		"the sandbox is not healthy at once":             {aliyunfake.Fault{Action: "Health", Times: 2, Status: 500}, good},
		"the sandbox's rights do not suffice for health": {aliyunfake.Fault{Action: "Health", Times: 9, Status: 403, Body: `{"code":"ERR_FORBIDDEN"}`}, sdk.CodeConnectionFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := start(t)
			p := configured(t, cloud)
			cloud.Fault(test.fault)
			made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", Labels: map[string]string{"tenant": "a"}})
			assert.Equal(t, sdk.CodeOf(err), test.want, "%v", err)
			if test.want != good {
				assert.Equal(t, cloud.Sandboxes(), 0, "nothing is left of a failed creation")
				refused := test.fault.Action != "Health" && test.fault.Status >= 300 && test.fault.Status < 500
				assert.Equal(t, knownToBeWithoutEffect(err), refused, "%v", err)
				return
			}
			assert.Equal(t, cloud.Sandboxes(), 1)
			_, printed, err := run(t, p, made.ID, counts)
			assert.NilError(t, err)
			assert.Equal(t, printed, "1\n")
			assert.NilError(t, p.Destroy(t.Context(), made.ID))
			assert.Equal(t, cloud.Sandboxes(), 0)
		})
	}
}

// knownToBeWithoutEffect reports whether an error says so.
func knownToBeWithoutEffect(err error) bool {
	e, ok := errors.AsType[*sdk.Error](err)
	return ok && e.NoEffect
}

func TestNothingIsMadeByAServiceThatIsNotReached(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	p := configured(t, cloud)
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"}) // finds the template
	assert.NilError(t, err)
	assert.NilError(t, p.Destroy(t.Context(), made.ID))
	cloud.Close()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
		assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeConnectionFailed), "%v", err)
		if !knownToBeWithoutEffect(err) { // a connection that was open yet
			return poll.Continue("%v", err)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

func TestWhateverTheServiceDoesCodeRunsAtMostOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault aliyunfake.Fault
		want  sdk.Code
		runs  int
	}{
		"the answer is lost after the start":      {aliyunfake.Fault{Action: "Command", After: true}, "", 1},
		"the answer is cut":                       {aliyunfake.Fault{Action: "Command", Half: true}, "", 1},
		"the gateway gives up after the start":    {aliyunfake.Fault{Action: "Command", After: true, Status: 504, Body: gateway}, "", 1},
		"the gateway gives up before the start":   {aliyunfake.Fault{Action: "Command", Status: 502, Body: gateway}, "", 1},
		"a failure comes with HTTP 200":           {aliyunfake.Fault{Action: "Command", Status: 200, Body: `{"code":"ERR_BAD_REQUEST"}`}, sdk.CodeUnavailable, 0},
		"the token has expired":                   {aliyunfake.Fault{Action: "Command", Status: 403, Body: `{"code":"ERR_FORBIDDEN"}`}, sdk.CodeConnectionFailed, 0},
		"the sandbox is gone":                     {aliyunfake.Fault{Action: "Command", Status: 404, Body: `{"code":"ERR_NOT_FOUND"}`}, sdk.CodeNotFound, 0},
		"the command answers what nobody expects": {aliyunfake.Fault{Action: "Command", Status: 200, Body: `{"status":"completed","result":{"stdout":"hello"}}`}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := start(t)
			p := configured(t, cloud)
			made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
			assert.NilError(t, err)
			cloud.Fault(test.fault)
			_, printed, err := run(t, p, made.ID, counts)
			assert.Equal(t, sdk.CodeOf(err), test.want, "%v", err)
			if test.want == "" {
				assert.Equal(t, printed, "1\n")
			}
			assert.Equal(t, knownToBeWithoutEffect(err), test.want == sdk.CodeNotFound, "%v", err)
			_, printed, err = run(t, p, made.ID, counts)
			assert.NilError(t, err)
			assert.Equal(t, printed, fmt.Sprintln(test.runs+1), "how often it has run")
		})
	}
}

func TestASandboxThatHasEndedIsNotFound(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	p := configured(t, cloud)
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.NilError(t, err)
	cloud.Expire()
	_, _, err = run(t, p, made.ID, "print(1)")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound, "%v", err)
	list, err := p.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 0)
	assert.NilError(t, p.Destroy(t.Context(), made.ID))
}

func TestALateListLosesNothing(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	p := configured(t, cloud)
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", Labels: map[string]string{"tenant": "a"}})
	assert.NilError(t, err)
	cloud.Fault(aliyunfake.Fault{Action: "ListSandboxes", Status: 200, Body: `{"code":"SUCCESS","data":{"items":[]}}`})
	list, err := p.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 1)
	assert.Equal(t, list[0].ID, made.ID)
	assert.DeepEqual(t, list[0].Labels, map[string]string{"tenant": "a"})
}

func TestTheTemplateIsMadeOnceForManyCreations(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	p := configured(t, cloud)
	var all sync.WaitGroup
	var failed atomic.Int32
	for range 8 {
		all.Go(func() {
			if _, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"}); err != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	assert.Equal(t, failed.Load(), int32(0))
	assert.Equal(t, cloud.Calls("CreateTemplate"), 1)
	assert.Equal(t, cloud.Sandboxes(), 8)
}

func TestWhatIsWrongWithTheConfigurationIsSaidWithItsField(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		values map[string]any
		code   sdk.Code
		field  string
	}{
		"the keys are swapped":            {map[string]any{"access_key_id": "SecretOfTheFakeKey0123456789", "access_key_secret": "LTAI5tFakeKeyOfTheTests"}, sdk.CodeInvalidConfig, "access_key_id"},
		"no key":                          {map[string]any{"access_key_id": ""}, sdk.CodeInvalidConfig, "access_key_id"},
		"no secret":                       {map[string]any{"access_key_secret": ""}, sdk.CodeInvalidConfig, "access_key_secret"},
		"the key twice":                   {map[string]any{"access_key_secret": "LTAI5tFakeKeyOfTheTests"}, sdk.CodeInvalidConfig, "access_key_secret"},
		"an account in place of the key":  {map[string]any{"access_key_id": "1234567890123456"}, sdk.CodeInvalidConfig, "access_key_id"},
		"a user in place of the key":      {map[string]any{"access_key_id": "me@1234567890123456.onaliyun.com"}, sdk.CodeInvalidConfig, "access_key_id"},
		"a key in place of the account":   {map[string]any{"account_id": "LTAI5tFakeKeyOfTheTests"}, sdk.CodeInvalidConfig, "account_id"},
		"a name in place of the account":  {map[string]any{"account_id": "my-company"}, sdk.CodeInvalidConfig, "account_id"},
		"a space in a key":                {map[string]any{"access_key_secret": "SecretOfTheFakeKey "}, sdk.CodeInvalidConfig, "access_key_secret"},
		"no token":                        {map[string]any{"access_key_id": "STS.NSomethingLong"}, sdk.CodeInvalidConfig, "security_token"},
		"a token that nobody needs":       {map[string]any{"security_token": "SecretOfNobody"}, sdk.CodeInvalidConfig, "security_token"},
		"a key beside the machine's role": {map[string]any{"identity": "ecs_role"}, sdk.CodeInvalidConfig, "identity"},
		"OIDC without a provider":         {map[string]any{"identity": "oidc", "access_key_id": "", "access_key_secret": ""}, sdk.CodeInvalidConfig, "identity"},
		"no VPC":                          {map[string]any{"network": "PRIVATE"}, sdk.CodeInvalidConfig, "vpc_id"},
		"no VSwitch":                      {map[string]any{"network": "PRIVATE", "vpc_id": "vpc-1"}, sdk.CodeInvalidConfig, "vswitch_ids"},
		"a template that is not":          {map[string]any{"template_name": "nothing"}, sdk.CodeInvalidConfig, "template_name"},
		"a template for browsers":         {map[string]any{"template_name": "browser"}, sdk.CodeInvalidConfig, "template_name"},
		"a key that is not known":         {map[string]any{"access_key_id": "LTAI5tAnotherKeyThanThis"}, sdk.CodeConnectionFailed, "access_key_id"},
		"a secret that is not right":      {map[string]any{"access_key_secret": "AnotherSecretThanThatOfTheKey"}, sdk.CodeConnectionFailed, "access_key_secret"},
		"a region of another signature":   {map[string]any{"region": "cn-beijing"}, sdk.CodeConnectionFailed, "account_id"},
		"a template that is there":        {map[string]any{"template_name": "mine"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := start(t)
			cloud.Template("browser", "Browser")
			cloud.Template("mine", "CodeInterpreter")
			values := given(cloud)
			for name, value := range test.values {
				values[name] = value
			}
			_, err := configure(t, values, t.TempDir())
			assert.Equal(t, sdk.CodeOf(err), test.code, "%v", err)
			if err != nil {
				e, ok := errors.AsType[*sdk.Error](err)
				assert.Check(t, ok && e.Field == test.field, "the field is not %q: %v", test.field, err)
				assert.Check(t, !strings.Contains(err.Error(), "SecretOf") && !strings.Contains(err.Error(), "AnotherSecret"), "%v", err)
			}
		})
	}
}

func TestTemporaryKeysAreSentWithTheirToken(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	cloud.Keys.AccessKeyID, cloud.Keys.SecurityToken = "STS.NTemporaryKey", "token/with+chars="
	values := given(cloud)
	values["security_token"] = cloud.Keys.SecurityToken
	p, err := configure(t, values, t.TempDir())
	assert.NilError(t, err)
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.NilError(t, err)
	_, printed, err := run(t, p, made.ID, "print('hello')")
	assert.NilError(t, err)
	assert.Equal(t, printed, "hello\n")
}

func TestSignaturesGoNowhereElse(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	p := configured(t, cloud)
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	for _, action := range []string{"CreateSandbox", "ListTemplates", "GetTemplate"} {
		cloud.Fault(aliyunfake.Fault{Action: action, Status: 307, Redirect: elsewhere.URL + "/2025-09-10/templates"})
	}
	health, err := p.Health(t.Context())
	assert.NilError(t, err)
	assert.Check(t, !health.Healthy)
	for range 2 {
		_, err = p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
		assert.Check(t, err != nil)
	}
	assert.Equal(t, asked.Load(), int32(0))
}

func TestWhatTheProcessBeforeHasLeftIsKnown(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	before := t.TempDir()
	p, err := configure(t, given(cloud), before)
	assert.NilError(t, err)
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", Labels: map[string]string{"tenant": "a"}, Env: map[string]string{"NAME": "value"}})
	assert.NilError(t, err)

	again := provider.New(hclog.NewNullLogger()).(*provider.Provider)
	settings, _ := again.Describe().Schema.Resolve(given(cloud))
	assert.NilError(t, again.Configure(t.Context(), sdk.ConfigureRequest{Label: "aliyun", BrokerID: "broker", StateDir: t.TempDir(), AbandonedDirs: []string{before}, Settings: settings}))
	defer func() { assert.Check(t, again.Close(t.Context())) }()
	list, err := again.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 1)
	assert.DeepEqual(t, list[0].Labels, map[string]string{"tenant": "a"})
	_, printed, err := run(t, again, made.ID, "import os\nprint(os.environ['NAME'])")
	assert.NilError(t, err)
	assert.Equal(t, printed, "value\n")
}

func TestTheTimeLimitOfTheProviderCutsThatOfTheCaller(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	values := given(cloud)
	values["timeout"] = 10 // seconds, within which an interpreter starts and prints on any machine
	p, err := configure(t, values, t.TempDir())
	assert.NilError(t, err)
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.NilError(t, err)
	result, printed, err := run(t, p, made.ID, "print('begun', flush=True)\nimport time\ntime.sleep(600)")
	assert.NilError(t, err)
	assert.Equal(t, result.Status, sdk.StatusTimeout)
	assert.Check(t, is.Contains(result.Detail, "shorter"))
	assert.Equal(t, printed, "begun\n")
}

// Pages of whatever stands before the service say nothing about a sandbox.
func TestAPageThatIsNotTheServicesEndsNothing(t *testing.T) {
	t.Parallel()
	cloud, p, id := created(t)
	for _, page := range []string{"404 page not found", "<html><h1>404 Not Found</h1></html>", `{"detail":"Not Found"}`, ""} {
		cloud.Fault(aliyunfake.Fault{Action: "*", Status: 404, Body: page})
		_, err := p.List(t.Context())
		assert.NilError(t, err)
		cloud.Fault(aliyunfake.Fault{Action: "GetSandbox", Times: 99, Status: 404, Body: page})
		list, err := p.List(t.Context())
		if err == nil {
			assert.Equal(t, len(list), 1, "%q", page)
		}
		cloud.Mend()
		cloud.Fault(aliyunfake.Fault{Action: "Command", Times: 99, Status: 404, Body: page})
		_, _, err = run(t, p, id, "print(1)")
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable, "%v", err)
		cloud.Mend()
		_, printed, err := run(t, p, id, "print(1)")
		assert.NilError(t, err)
		assert.Equal(t, printed, "1\n")
	}
	list, err := p.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 1)
}

func TestAnAddressWhereSomethingElseAnswersIsRefused(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	cloud.Fault(aliyunfake.Fault{Action: "GetSandbox", Times: 99, Status: 404, Body: "404 page not found"})
	_, err := configure(t, given(cloud), t.TempDir())
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeConnectionFailed, "%v", err)
	e, _ := errors.AsType[*sdk.Error](err)
	assert.Equal(t, e.Field, "data_endpoint")
}

// Answers that are well formed and empty are no answers.
func TestAnEmptyObjectIsTakenForNothing(t *testing.T) {
	t.Parallel()
	cloud, p, id := created(t)
	cloud.Fault(aliyunfake.Fault{Action: "CreateSandbox", Status: 200, Body: `{}`})
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.NilError(t, err)
	assert.Equal(t, cloud.Calls(""), 0, "paths that there are not")
	assert.NilError(t, p.Destroy(t.Context(), made.ID))

	kernel, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
	assert.NilError(t, err)
	for _, test := range []struct{ action, body string }{
		{"Command", `{}`}, {"Command", `{"status":"completed"}`}, {"ExecuteCode", `{}`}, {"ExecuteCode", `{"contextId":"x"}`},
	} {
		cloud.Fault(aliyunfake.Fault{Action: test.action, Skip: 1, Status: 200, Body: test.body})
		result, err := p.Execute(t.Context(), sdk.ExecuteRequest{
			InstanceID: id, ExecutionID: "x", ContextID: kernel.ID, Code: "print(1)", Timeout: 2 * time.Minute, OutputLimit: 1 << 20,
		}, &heard{})
		assert.Check(t, err != nil || result.Status == sdk.StatusSucceeded && test.action == "Command", "%+v %+v", test, result)
		cloud.Mend()
	}
}

// Private networks have addresses of other kinds.
func TestAnAddressWithoutTLSAndWithASlashIsTaken(t *testing.T) {
	t.Parallel()
	cloud := startWith(t, aliyunfake.Options{Plain: true})
	values := given(cloud)
	values["data_endpoint"] = cloud.URL() + "/"
	p, err := configure(t, values, t.TempDir())
	assert.NilError(t, err)
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.NilError(t, err)
	_, printed, err := run(t, p, made.ID, "print('hello')")
	assert.NilError(t, err)
	assert.Equal(t, printed, "hello\n")
}
