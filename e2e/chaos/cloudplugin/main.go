// Command cloudplugin is a provider plugin for the cloud of e2e/chaos: an honest
// one, which passes on what the cloud does and says.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/serve"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func main() {
	serve.Serve(func(hclog.Logger) sdk.Provider { return &provider{parent: brokerProcess()} })
}

// brokerProcess is the parent of our parent, which is the watchdog.
func brokerProcess() (pid int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", os.Getppid()))
	if err != nil {
		panic(err)
	}
	var state string
	if _, err := fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &pid); err != nil {
		panic(err)
	}
	return pid
}

// languages are many names of one: clients of front doors know no other.
var languages = []sdk.Language{"wait", sdk.Python, sdk.JavaScript}

// provider speaks to one cloud.
type provider struct {
	// parent is the broker's process: asked for early, because it is another one when
	// that has died.
	parent   int
	endpoint string
	broker   string
}

var _ sdk.Provider = (*provider)(nil)

func (p *provider) Describe() sdk.Description {
	return sdk.Description{
		Name: "cloud", Version: "0.0.1", Summary: "Sandboxes of a cloud that lies.", Icon: "cloud", Tags: []string{"test"},
		Languages: languages,
		Templates: []sdk.Template{{Name: "wait", Languages: languages}},
		Schema: sdk.Schema{
			{Name: "endpoint", Type: sdk.TypeString, Required: true, Description: "Where the cloud is."},
		},
	}
}

func (p *provider) Configure(_ context.Context, req sdk.ConfigureRequest) error {
	p.endpoint, _ = req.Settings["endpoint"].(string)
	p.broker = req.BrokerID
	return nil
}

func (p *provider) Health(context.Context) (sdk.Health, error) { return sdk.Health{Healthy: true}, nil }

func (p *provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	var made cloud.Instance
	err := p.call(ctx, "create", cloud.CreateRequest{
		Labels: req.Labels, Key: req.IdempotencyKey, Template: req.Template, Image: req.Image, Snapshot: sourceOf(req.Snapshot), Volumes: mountsOf(req.Volumes),
	}, &made)
	return instance(made), err
}

func (p *provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	began := time.Now()
	var ran cloud.Program
	err := p.call(ctx, "execute", cloud.ExecuteRequest{Instance: req.InstanceID, Execution: req.ExecutionID, Code: req.Code, Context: req.ContextID}, &ran)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	// What the cloud says that it has run is what the code prints.
	err = out.Stdout([]byte(ran.Token + "\n"))
	result := sdk.ExecuteResult{Status: sdk.StatusSucceeded, Duration: time.Since(began)}
	if req.Arguments != nil {
		result.Result = json.RawMessage("null")
	}
	return result, err
}

func (p *provider) Destroy(ctx context.Context, instanceID string) error {
	return p.call(ctx, "destroy", cloud.DestroyRequest{Instance: instanceID}, nil)
}

func (p *provider) List(ctx context.Context) ([]sdk.Instance, error) {
	var all []cloud.Instance
	if err := p.call(ctx, "list", map[string]string{sdk.LabelBroker: p.broker}, &all); err != nil {
		return nil, err
	}
	list := make([]sdk.Instance, 0, len(all))
	for _, i := range all {
		list = append(list, instance(i))
	}
	return list, nil
}

func instance(i cloud.Instance) sdk.Instance {
	return sdk.Instance{ID: i.ID, Template: i.Template, Labels: i.Labels, CreatedAt: i.CreatedAt}
}

// call asks the cloud.
func (p *provider) call(ctx context.Context, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.endpoint+"/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set(cloud.ProcessHeader, strconv.Itoa(os.Getpid()))
	req.Header.Set(cloud.BrokerHeader, strconv.Itoa(p.parent))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failed := sdk.Errorf(sdk.CodeConnectionFailed, "the connection to the cloud failed: %w", err)
		failed.NoEffect = errors.Is(err, syscall.ECONNREFUSED) // the cloud has heard of nothing
		return failed
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return sdk.Errorf(sdk.CodeConnectionFailed, "the connection to the cloud broke: %w", err)
	case resp.StatusCode == http.StatusNotFound:
		return refused(sdk.CodeNotFound, text)
	case resp.StatusCode == http.StatusUnprocessableEntity:
		return refused(sdk.CodeInvalidRequest, text)
	case resp.StatusCode == http.StatusGone:
		gone := sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "%s", bytes.TrimSpace(text))
		gone.NoEffect = true
		return gone
	case resp.StatusCode == http.StatusConflict:
		return refused(sdk.CodeConflict, text)
	case resp.StatusCode == http.StatusTooManyRequests:
		return sdk.Errorf(sdk.CodeQuotaExceeded, "%s", bytes.TrimSpace(text))
	case resp.StatusCode != http.StatusOK:
		return sdk.Errorf(sdk.CodeUnavailable, "the cloud failed: %d", resp.StatusCode)
	case answer == nil:
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("the answer of the cloud: %w", err)
	}
	return nil
}

// refused is the error for a refusal, whose text may begin with a field.
func refused(code sdk.Code, text []byte) error {
	said := string(bytes.TrimSpace(text))
	field, message, has := strings.Cut(said, ": ")
	if !has {
		field, message = "", said
	}
	return &sdk.Error{Code: code, Field: field, Message: message, NoEffect: true}
}
