package sdk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/serve"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// boxes is a provider for a cloud that sells boxes to run Python in: the whole
// contract in one type.
type boxes struct {
	logger   hclog.Logger
	brokerID string
	settings struct {
		Endpoint string        `config:"endpoint"`
		Token    string        `config:"token"`
		MaxAge   time.Duration `config:"max_age"`
	}
}

func newBoxes(logger hclog.Logger) sdk.Provider { return &boxes{logger: logger} }

// A plugin's main is one line.
func Example_main() {
	serve.Serve(newBoxes)
}

func (b *boxes) Describe() sdk.Description {
	return sdk.Description{
		Name:      "boxes",
		Version:   "1.0.0",
		Summary:   "Boxes in the cloud.",
		Languages: []sdk.Language{sdk.Python},
		Templates: []sdk.Template{{Name: "python", Languages: []sdk.Language{sdk.Python}}},
		Schema:    boxesSchema(),
	}
}

func boxesSchema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "endpoint", Type: sdk.TypeString, Required: true, Pattern: `https?://.+`,
			Label: "Endpoint", Description: "The URL of the service.", Placeholder: "https://boxes.example",
		},
		{
			Name: "token", Type: sdk.TypeString, Required: true, Secret: true,
			Label: "Token", Description: "The API token of your account.",
		},
		{
			Name: "max_age", Type: sdk.TypeDuration, Default: "1h", Min: sdk.Bound(60),
			Label: "Longest life", Description: "After this time the service deletes a box by itself.",
		},
	}
}

func (b *boxes) Configure(ctx context.Context, req sdk.ConfigureRequest) error {
	b.brokerID = req.BrokerID
	if err := req.Settings.Decode(&b.settings); err != nil {
		return err
	}
	err := b.call(ctx, http.MethodGet, "/account", nil, nil)
	if errors.Is(err, errToken) {
		// With a field, the broker shows the line in the file.
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "token", "%w", errToken)
	}
	return err
}

func (b *boxes) Health(ctx context.Context) (sdk.Health, error) {
	err := b.call(ctx, http.MethodGet, "/account", nil, nil)
	health := sdk.Health{Healthy: err == nil}
	if err != nil {
		health.Reason = err.Error()
	}
	return health, nil
}

// box is what the service knows of a box. Its labels come back from List.
type box struct {
	ID     string            `json:"id,omitempty"`
	Owner  string            `json:"owner"`
	Labels map[string]string `json:"labels"`
	Env    map[string]string `json:"env,omitempty"`
	Expiry time.Time         `json:"expiry"`
}

func (b *boxes) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	life := b.settings.MaxAge
	if req.TTL > 0 {
		life = min(life, req.TTL)
	}
	wanted := box{Owner: b.brokerID, Labels: req.Labels, Env: req.Env, Expiry: time.Now().Add(life)}
	var made box
	// The key is the name: asked twice, the service answers with the same box.
	if err := b.call(ctx, http.MethodPut, "/boxes/"+req.IdempotencyKey, wanted, &made); err != nil {
		return sdk.Instance{}, err
	}
	return instanceOf(made), nil
}

func instanceOf(b box) sdk.Instance {
	return sdk.Instance{ID: b.ID, Template: "python", Labels: b.Labels, ExpiresAt: b.Expiry}
}

func (b *boxes) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	started := time.Now()
	var ran struct {
		Stdout, Stderr []byte
		Value          json.RawMessage
		ExitCode       int
		TimedOut       bool
	}
	// This service stops the code when the request that started it ends.
	err := b.call(ctx, http.MethodPost, "/boxes/"+req.InstanceID+"/runs", map[string]any{
		"code": req.Code, "arguments": req.Arguments, "env": req.Env, "seconds": req.Timeout.Seconds(),
	}, &ran)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	// Above OutputLimit the SDK cuts, and says so in the result.
	if err := errors.Join(out.Stdout(ran.Stdout), out.Stderr(ran.Stderr)); err != nil {
		return sdk.ExecuteResult{}, err
	}
	result := sdk.ExecuteResult{Status: sdk.StatusSucceeded, ExitCode: ran.ExitCode, Result: ran.Value, Duration: time.Since(started)}
	switch {
	case ran.TimedOut:
		result.Status = sdk.StatusTimeout
	case ran.ExitCode != 0:
		result.Status = sdk.StatusFailed
	}
	return result, nil
}

func (b *boxes) Destroy(ctx context.Context, instanceID string) error {
	err := b.call(ctx, http.MethodDelete, "/boxes/"+instanceID, nil, nil)
	if sdk.CodeOf(err) == sdk.CodeNotFound {
		return nil // it is gone, which is what was asked for
	}
	return err
}

func (b *boxes) List(ctx context.Context) ([]sdk.Instance, error) {
	return b.ListOf(ctx, b.brokerID)
}

// ListOf lists the boxes of any broker: all that have the account can serve them.
func (b *boxes) ListOf(ctx context.Context, brokerID string) ([]sdk.Instance, error) {
	var all []box
	if err := b.call(ctx, http.MethodGet, "/boxes?owner="+brokerID, nil, &all); err != nil {
		return nil, err
	}
	var instances []sdk.Instance
	for _, one := range all {
		instances = append(instances, instanceOf(one))
	}
	return instances, nil
}

// Adopt has the service write this broker's ID on a box of another one. From then on List has it,
// and that of the other broker has it no more.
func (b *boxes) Adopt(ctx context.Context, instanceID, brokerID string) error {
	var found box
	if err := b.call(ctx, http.MethodGet, "/boxes/"+instanceID, nil, &found); err != nil {
		return err
	}
	switch found.Owner {
	case b.brokerID:
		return nil
	case brokerID:
		found.Owner, found.Labels[sdk.LabelBroker] = b.brokerID, b.brokerID
		return b.call(ctx, http.MethodPatch, "/boxes/"+instanceID, found, nil)
	default:
		return sdk.Errorf(sdk.CodeNotFound, "the box is yet another broker's")
	}
}

// Release has nothing to do, since this provider does nothing to a box by itself.
func (b *boxes) Release(context.Context, string) error { return nil }

// call asks the service. What it says becomes a code that tells the agent what
// to do.
func (b *boxes) call(ctx context.Context, method, path string, in, out any) error {
	if method != http.MethodGet { // the box may be another broker's by now
		if err := sdk.LeaseOf(ctx).Held(); err != nil {
			return err
		}
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, b.settings.Endpoint+path, bytes.NewReader(body))
	if err != nil {
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "endpoint", "is not a URL")
	}
	req.Header.Set("Authorization", "Bearer "+b.settings.Token)
	resp, err := http.DefaultClient.Do(req)
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	if err != nil {
		return sdk.Errorf(sdk.CodeConnectionFailed, "the service does not answer: %w", err)
	}
	defer resp.Body.Close()
	if err := failure(resp); err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out)
}

// maxAnswer bounds what is read of an answer: the service is not to be trusted
// with our memory.
const maxAnswer = 32 << 20

var errToken = errors.New("the service does not accept the token")

func failure(resp *http.Response) error {
	switch {
	case resp.StatusCode < 300:
		return nil
	case resp.StatusCode == http.StatusUnauthorized:
		return sdk.Errorf(sdk.CodeConnectionFailed, "%w", errToken)
	case resp.StatusCode == http.StatusNotFound:
		return &sdk.Error{Code: sdk.CodeNotFound, Message: "no such box", NoEffect: true}
	case resp.StatusCode == http.StatusTooManyRequests:
		full := sdk.Errorf(sdk.CodeQuotaExceeded, "the account has as many boxes as it may")
		full.RetryAfter = 10 * time.Second
		return full
	default:
		return sdk.Errorf(sdk.CodeUnavailable, "the service answered %s", resp.Status)
	}
}

// A schema checks what the operator wrote, before Configure sees it.
func Example_schema() {
	settings, mistakes := boxesSchema().Resolve(map[string]any{
		"endpoint": "https://boxes.example", "token": "t", "max_age": "90m",
	})
	fmt.Println(settings["max_age"], len(mistakes))

	_, mistakes = boxesSchema().Resolve(map[string]any{"endpoint": "boxes.example", "max_age": "10s"})
	for _, m := range mistakes {
		fmt.Println(m)
	}
	// Output:
	// 1h30m0s 0
	// endpoint: must match the pattern https?://.+
	// token: is required
	// max_age: must be at least 60 seconds
}

// An error is tested by its code. A wrapped cause stays in the plugin; the code
// and the message reach the agent.
func ExampleError() {
	err := fmt.Errorf("create: %w", sdk.Errorf(sdk.CodeCreateFailed, "no box is free: %w", context.DeadlineExceeded))

	fmt.Println(err)
	fmt.Println(errors.Is(err, &sdk.Error{Code: sdk.CodeCreateFailed}))
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	fmt.Println(sdk.CodeOf(err), sdk.CodeOf(err).Info().Retryable)
	// Output:
	// create: SB004: no box is free: context deadline exceeded
	// true
	// true
	// SB004 true
}
