package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// routesAsked remembers which routes were asked, by method and pattern.
type routesAsked struct {
	mu   sync.Mutex
	seen map[string]int
}

func (r *routesAsked) Request(_ context.Context, method, route string, _ int, _ sdk.Code, _ time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[strings.ToLower(method)+" "+route]++
}

// callEverything calls all methods of a client that take a context first. What they
// answer is not looked at: mostly that there is no such thing.
func callEverything(t *testing.T, of any, id string) {
	v := reflect.ValueOf(of)
	for i := range v.NumMethod() {
		method := v.Method(i)
		if method.Type().NumIn() == 0 || method.Type().In(0) != reflect.TypeFor[context.Context]() {
			continue
		}
		args := []reflect.Value{reflect.ValueOf(t.Context())}
		for _, in := range slices.Collect(method.Type().Ins())[1:] {
			switch in {
			case reflect.TypeFor[string]():
				args = append(args, reflect.ValueOf(id))
			case reflect.TypeFor[io.Reader]():
				args = append(args, reflect.ValueOf(io.Reader(strings.NewReader("x"))))
			case reflect.TypeFor[client.Request]():
				args = append(args, reflect.ValueOf(client.Request{Method: http.MethodGet, Path: "/healthz"}))
			case reflect.TypeFor[int]():
				args = append(args, reflect.ValueOf(8080))
			default:
				args = append(args, reflect.Zero(in))
			}
		}
		for _, out := range method.Call(args) {
			switch out := out.Interface().(type) {
			case *http.Response:
				_ = out.Body.Close()
			case io.Closer:
				if !reflect.ValueOf(out).IsNil() {
					_ = out.Close()
				}
			}
		}
	}
}

func TestTheClientKnowsEveryOperation(t *testing.T) {
	asked := &routesAsked{seen: map[string]int{}}
	f := start(t, withAdmin, func(o *api.Options, _ *fixture) { o.Meter = asked })
	broker := client.New("http://"+f.address, "acme-token").Over(f.client)
	callEverything(t, broker, "nobody:s:i")
	callEverything(t, broker, client.FilesOf("none"))
	callEverything(t, client.ExecutionsOf(broker), "none")
	callEverything(t, client.SnapshotsOf(broker), "none")
	callEverything(t, client.VolumesOf(broker), "none")
	callEverything(t, client.TemplatesOf(broker), "none")
	callEverything(t, client.New("http://"+f.address, "admin-token").Over(f.client).Admin(), "nobody:s:i")
	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	f.do(http.MethodGet, "/openapi.json", "").wants(http.StatusOK).decode(&document)
	// A program's own requests, and what people look at.
	not := []string{"/api/v1/instances/{id}/ports/{port}/{path}", "/preview/{token}/{path}", "/openapi.json", "/api/v1/instances/{id}/files post", "/api/v1/volumes/{volume}/files post"}
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		for method := range document.Paths[path] {
			pages := strings.HasPrefix(path, "/admin") || path == "/docs"
			if pages || slices.Contains(not, path) || slices.Contains(not, path+" "+method) {
				continue
			}
			assert.Check(t, asked.seen[method+" "+path] > 0, "no method of the client asks for %s %s", method, path)
		}
	}
}

func TestTheClientReadsWhatTheBrokerAnswers(t *testing.T) {
	f := start(t)
	f.provider.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		err := out.Stdout([]byte("a\xff"))
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded, Result: json.RawMessage(`{"a":  1}`)}, err
	}
	ctx, broker := t.Context(), client.New("http://"+f.address+"/", "acme-token").Over(f.client)
	request := client.ExecuteRequest{Language: "python", Code: "1"}
	execution, err := broker.Execute(ctx, request)
	assert.NilError(t, err)
	assert.Equal(t, string(execution.Result), `{"a":  1}`)
	assert.DeepEqual(t, execution.StdoutBase64, []byte("a\xff"))

	events, err := broker.ExecuteEvents(ctx, request)
	assert.NilError(t, err)
	var names []string
	for event, err := range events.All() {
		assert.NilError(t, err)
		names = append(names, event.Name)
	}
	assert.DeepEqual(t, names, []string{client.EventStarted, client.EventStdout, client.EventResult, client.EventDone})
	assert.NilError(t, events.Close())

	_, err = broker.With("X-Request-Id", "mine").Instance(ctx, "acme:s:aaaaaaaaaaaaaaaaaaaa")
	problem, refused := errors.AsType[*client.Problem](err)
	assert.Assert(t, refused, "%v", err)
	assert.Equal(t, problem.Status, http.StatusNotFound)
	assert.Equal(t, problem.RequestID, "mine")

	made, err := broker.CreateInstance(ctx, client.CreateInstanceRequest{SessionID: "s", Labels: map[string]string{"a": "b"}})
	assert.NilError(t, err)
	list, err := broker.Instances(ctx, url.Values{"label": {"a=b"}})
	assert.NilError(t, err)
	assert.Equal(t, list.Instances[0].ID, made.ID)
	assert.NilError(t, broker.DestroyInstance(ctx, made.ID))
}

// Something on the way may drop the wish for events.
func TestAnExecutionThatIsAnsweredAtOnceBecomesEvents(t *testing.T) {
	f := start(t)
	f.provider.OnExecute = func(_ context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		err := out.Stdout([]byte("x"))
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded, Result: json.RawMessage(`1`)}, err
	}
	broker := client.New("http://"+f.address, "acme-token").Over(&http.Client{Transport: withoutAccept{f.client.Transport}})
	events, err := broker.ExecuteEvents(t.Context(), client.ExecuteRequest{Language: "python", Code: "1"})
	assert.NilError(t, err)
	var stdout bytes.Buffer
	last := client.Event{}
	for event, err := range events.All() {
		assert.NilError(t, err)
		if last = event; event.Name == client.EventStdout {
			var part client.OutputPart
			assert.NilError(t, client.Decode(event, &part))
			stdout.WriteString(part.Text)
		}
	}
	assert.Equal(t, stdout.String(), "x")
	assert.Equal(t, last.Name, client.EventDone)
}

type withoutAccept struct{ http.RoundTripper }

func (w withoutAccept) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("Accept")
	return w.RoundTripper.RoundTrip(r)
}
