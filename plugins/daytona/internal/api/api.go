// Package api is a client of Daytona: of its API, where sandboxes are made and ended, and of
// the toolbox, the server in each sandbox. It has the calls that the provider makes, as the
// published clients of the versions 0.190 to 0.218 make them. What an answer means to the
// broker is for the provider.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxAnswer bounds an answer that is read into memory, in bytes.
const maxAnswer = 32 << 20

// State is that of a sandbox. There may be others, of later versions.
type State string

// The states that mean something to the provider.
const (
	Started     State = "started"
	Stopped     State = "stopped"
	Paused      State = "paused"
	Archived    State = "archived"
	Destroying  State = "destroying"
	Destroyed   State = "destroyed"
	Failed      State = "error"
	BuildFailed State = "build_failed"
)

// Sandbox is one, as the API describes it.
type Sandbox struct {
	ID     string            `json:"id"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	State  State             `json:"state"`
	// ErrorReason says why it is in an error; Recoverable that recovering may help.
	ErrorReason string    `json:"errorReason"`
	Recoverable bool      `json:"recoverable"`
	CreatedAt   time.Time `json:"createdAt"`
	Target      string    `json:"target"`
	CPU         float64   `json:"cpu"`
	Memory      float64   `json:"memory"` // GiB
	Disk        float64   `json:"disk"`   // GiB
	// ToolboxProxyURL is where its toolbox is reached, without its ID.
	ToolboxProxyURL string `json:"toolboxProxyUrl"`
}

// NewSandbox says what to make. What is empty is left to Daytona.
type NewSandbox struct {
	Name             string            `json:"name"`
	Snapshot         string            `json:"snapshot,omitempty"`
	BuildInfo        *BuildInfo        `json:"buildInfo,omitempty"`
	User             string            `json:"user,omitempty"`
	Env              map[string]string `json:"env,omitempty"`
	Labels           map[string]string `json:"labels"`
	Target           string            `json:"target,omitempty"`
	CPU              int64             `json:"cpu,omitempty"`
	Memory           int64             `json:"memory,omitempty"` // GiB
	Disk             int64             `json:"disk,omitempty"`   // GiB
	NetworkBlockAll  bool              `json:"networkBlockAll,omitempty"`
	NetworkAllowList string            `json:"networkAllowList,omitempty"`
	// Minutes.
	AutoStopInterval    int64 `json:"autoStopInterval"`
	AutoArchiveInterval int64 `json:"autoArchiveInterval,omitempty"`
	AutoDeleteInterval  int64 `json:"autoDeleteInterval"`
}

// BuildInfo is an image by its Dockerfile.
type BuildInfo struct {
	DockerfileContent string `json:"dockerfileContent"`
}

// Client speaks to Daytona.
type Client struct {
	// URL of the API, without a slash at its end.
	URL string
	// Key of an organization, or a token of a user with the organization.
	Key, Organization string
	// Calls is for the API, Toolbox for what may take as long as a command does.
	Calls, Toolbox *http.Client
}

// version makes the toolbox answer as it has since 0.190.
const version = "0.190.0"

// send sends a request, and returns an answer whose status is below 300.
func (c *Client) send(ctx context.Context, client *http.Client, method, address string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Authorization", "Bearer "+c.Key)
	req.Header.Set("X-Daytona-Source", "sandbox-broker")
	req.Header.Set("X-Daytona-SDK-Version", version)
	if c.Organization != "" {
		req.Header.Set("X-Daytona-Organization-ID", c.Organization)
	}
	resp, err := client.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok { // the address says nothing that the operation does not
			err = wrapped.Err
		}
		return nil, err
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, readError(resp)
	}
	return resp, nil
}

// call sends a JSON body, unless in is nil, and decodes the answer into out, unless that is
// nil.
func (c *Client) call(ctx context.Context, client *http.Client, method, address string, in, out any) error {
	var body io.Reader
	header := http.Header{}
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode a request: %w", err)
		}
		body = bytes.NewReader(text)
		header.Set("Content-Type", "application/json")
	}
	resp, err := c.send(ctx, client, method, address, header, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(text, out); err != nil {
		return &Error{Status: resp.StatusCode, Message: "the answer is not what was expected: " + err.Error(), Stray: true}
	}
	return nil
}

// api makes a call of the API.
func (c *Client) api(ctx context.Context, method, path string, in, out any) error {
	return c.call(ctx, c.Calls, method, c.URL+path, in, out)
}

// CheckKey asks what the key is good for.
func (c *Client) CheckKey(ctx context.Context) error {
	return c.api(ctx, http.MethodGet, "/api-keys/current", nil, nil)
}

// Probe asks whether the API answers.
func (c *Client) Probe(ctx context.Context) error {
	return c.api(ctx, http.MethodGet, "/config", nil, nil)
}

// Create makes a sandbox, which need not run yet.
func (c *Client) Create(ctx context.Context, n NewSandbox) (Sandbox, error) {
	return c.sandbox(ctx, http.MethodPost, "/sandbox", n)
}

// sandbox makes a call whose answer is a sandbox.
func (c *Client) sandbox(ctx context.Context, method, path string, in any) (Sandbox, error) {
	var s Sandbox
	err := c.api(ctx, method, path, in, &s)
	if err == nil && s.ID == "" {
		err = &Error{Status: http.StatusOK, Message: "the answer names no sandbox", Stray: true}
	}
	return s, err
}

// Get describes a sandbox by its ID or name.
func (c *Client) Get(ctx context.Context, idOrName string) (Sandbox, error) {
	return c.sandbox(ctx, http.MethodGet, "/sandbox/"+url.PathEscape(idOrName), nil)
}

// Action is something that a sandbox is asked to do; it goes on when the call has returned.
type Action string

// The actions.
const (
	Start   Action = "start"
	Stop    Action = "stop"
	Pause   Action = "pause"
	Archive Action = "archive"
	Recover Action = "recover"
)

// Do asks a sandbox to do something.
func (c *Client) Do(ctx context.Context, id string, action Action) error {
	return c.api(ctx, http.MethodPost, "/sandbox/"+id+"/"+string(action), nil, nil)
}

// KeepAlive has the clock of the automatic stop begin anew.
func (c *Client) KeepAlive(ctx context.Context, id string) error {
	return c.api(ctx, http.MethodPost, "/sandbox/"+id+"/last-activity", nil, nil)
}

// SetLabels puts other labels in the place of all that a sandbox has.
func (c *Client) SetLabels(ctx context.Context, id string, labels map[string]string) error {
	return c.api(ctx, http.MethodPut, "/sandbox/"+id+"/labels", map[string]any{"labels": labels}, nil)
}

// Delete has a sandbox destroyed.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.api(ctx, http.MethodDelete, "/sandbox/"+url.PathEscape(id), nil, nil)
}

// maxPages bounds a list that does not end.
const maxPages = 1000

// List describes the sandboxes with a label.
func (c *Client) List(ctx context.Context, label, value string) ([]Sandbox, error) {
	labels, err := json.Marshal(map[string]string{label: value})
	if err != nil {
		return nil, err
	}
	query := url.Values{"labels": {string(labels)}, "limit": {"100"}}
	var all []Sandbox
	for range maxPages {
		var page struct {
			Items      []Sandbox `json:"items"`
			NextCursor string    `json:"nextCursor"`
		}
		if err := c.api(ctx, http.MethodGet, "/sandbox?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.NextCursor == "" {
			return all, nil
		}
		query.Set("cursor", page.NextCursor)
	}
	return nil, fmt.Errorf("the list of sandboxes does not end after %d pages", maxPages)
}

// Preview is the address of a port of a sandbox. Requests carry the token.
type Preview struct{ URL, Token string }

// Preview finds the address of a port.
func (c *Client) Preview(ctx context.Context, id string, port uint16) (Preview, error) {
	var p Preview
	err := c.api(ctx, http.MethodGet, fmt.Sprintf("/sandbox/%s/ports/%d/preview-url", id, port), nil, &p)
	return p, err
}

// toolbox is the address of a call of the toolbox.
func (s Sandbox) toolbox(path string) string {
	return strings.TrimRight(s.ToolboxProxyURL, "/") + "/" + s.ID + path
}

// Execution is what a command has come to. Both streams are in Result.
type Execution struct {
	ExitCode int    `json:"exitCode"`
	Result   string `json:"result"`
}

// Execute has a shell read a command, and waits for its end.
func (c *Client) Execute(ctx context.Context, s Sandbox, command string, timeout time.Duration) (Execution, error) {
	var e Execution
	body := map[string]any{"command": command, "timeout": int64(timeout.Seconds())}
	err := c.call(ctx, c.Toolbox, http.MethodPost, s.toolbox("/process/execute"), body, &e)
	return e, err
}

// Upload writes a file, and makes the directories that it is in.
func (c *Client) Upload(ctx context.Context, s Sandbox, path string, content []byte) error {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	// A buffer takes everything. The path must come first.
	_ = form.WriteField("files[0].path", path)
	file, _ := form.CreateFormFile("files[0].file", "file")
	_, _ = file.Write(content)
	_ = form.Close()
	resp, err := c.send(ctx, c.Toolbox, http.MethodPost, s.toolbox("/files/bulk-upload"), http.Header{"Content-Type": {form.FormDataContentType()}}, &body)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Download reads a file from its beginning on.
func (c *Client) Download(ctx context.Context, s Sandbox, path string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, c.Toolbox, http.MethodGet, s.toolbox("/files/download?path="+url.QueryEscape(path)), nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Error is an answer that says no.
type Error struct {
	Status        int
	Code, Message string
	// RetryAfter is what the server asks for; 0 if it does not.
	RetryAfter time.Duration
	// Stray says that it is of nobody who knows the protocol: a proxy, a balancer.
	Stray bool
}

// Error is what the server said.
func (e *Error) Error() string {
	text := "status " + strconv.Itoa(e.Status)
	for _, part := range []string{e.Code, e.Message} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

const (
	maxErrorBody    = 64 << 10
	maxErrorMessage = 500
)

// readError reads what is wrong from an answer.
func readError(resp *http.Response) *Error {
	e := &Error{Status: resp.StatusCode}
	if seconds, err := strconv.ParseUint(strings.TrimSpace(resp.Header.Get("Retry-After")), 10, 31); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what there is of it has to do
	var body struct {
		StatusCode int    `json:"statusCode"`
		Code       string `json:"code"`
		Message    any    `json:"message"`
	}
	if json.Unmarshal(text, &body) != nil || body.StatusCode != resp.StatusCode {
		e.Stray = len(text) > 0 // the toolbox says nothing of a file that is not there
		return e
	}
	message, ok := body.Message.(string)
	if !ok { // of a validation there are several
		several, _ := json.Marshal(body.Message)
		message = string(several)
	}
	message = strings.Join(strings.Fields(message), " ")
	if len(message) > maxErrorMessage {
		message = strings.ToValidUTF8(message[:maxErrorMessage], "") + "…"
	}
	e.Code, e.Message = body.Code, message
	return e
}
