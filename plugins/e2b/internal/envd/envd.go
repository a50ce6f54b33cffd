// Package envd is a client of envd, the server in each E2B sandbox that has its
// processes and files. It speaks the Connect protocol in JSON, and plain HTTP for the
// content of files.
//
// Start with process.go; stream.go has the envelopes that streams consist of.
package envd

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
)

// Port at which envd listens in every sandbox.
const Port = 49983

// unaryTimeout bounds calls with one answer.
const unaryTimeout = 60 * time.Second

// Client talks to the envd of one sandbox. It may be used by several goroutines.
type Client struct {
	endpoint e2bhttp.Endpoint
	user     string
}

// New makes a client. Its calls are for an OS user of the sandbox; the empty name
// stands for the template's default.
func New(endpoint e2bhttp.Endpoint, user string) *Client {
	endpoint.Header = endpoint.Header.Clone()
	if user != "" {
		endpoint.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	}
	return &Client{endpoint, user}
}

// call makes a unary call of the Connect protocol.
func (c *Client) call(ctx context.Context, method string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, unaryTimeout)
	defer cancel()
	_, err := c.endpoint.Call(ctx, http.MethodPost, method, in, out)
	return err
}

// Health says whether envd answers.
func (c *Client) Health(ctx context.Context) error {
	_, err := c.endpoint.Call(ctx, http.MethodGet, "/health", nil, nil)
	return err
}

// Metrics are live numbers of the sandbox, in bytes.
type Metrics struct {
	CPUCount  float64 `json:"cpu_count"`
	MemTotal  int64   `json:"mem_total"`
	MemUsed   int64   `json:"mem_used"`
	DiskUsed  int64   `json:"disk_used"`
	DiskTotal int64   `json:"disk_total"`
}

// Metrics measures now.
func (c *Client) Metrics(ctx context.Context) (Metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, unaryTimeout)
	defer cancel()
	var m Metrics
	_, err := c.endpoint.Call(ctx, http.MethodGet, "/metrics", nil, &m)
	return m, err
}

// Envs is the environment that every process gets.
func (c *Client) Envs(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, unaryTimeout)
	defer cancel()
	envs := map[string]string{}
	_, err := c.endpoint.Call(ctx, http.MethodGet, "/envs", nil, &envs)
	if envs == nil { // null
		envs = map[string]string{}
	}
	return envs, err
}

// MakeDir makes a directory and its parents for the user. One that exists is fine.
func (c *Client) MakeDir(ctx context.Context, path string) error {
	err := c.call(ctx, "/filesystem.Filesystem/MakeDir", map[string]string{"path": path}, nil)
	if e, ok := errors.AsType[*e2bhttp.Error](err); ok && e.Code == "already_exists" {
		return nil
	}
	return err
}

// Remove removes a file, or a directory with all that is in it. One that is not there
// is fine.
func (c *Client) Remove(ctx context.Context, path string) error {
	return c.call(ctx, "/filesystem.Filesystem/Remove", map[string]string{"path": path}, nil)
}

// Download opens a file. A length of 0 stands for all that comes from the offset on.
func (c *Client) Download(ctx context.Context, path string, offset, length int64) (io.ReadCloser, error) {
	header := http.Header{"Accept-Encoding": {"identity"}}
	switch {
	case length > 0:
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	case offset > 0:
		header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := c.endpoint.Send(ctx, http.MethodGet, c.files(path), header, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Upload makes or replaces a file, with parents. If content fails, a part of it may be
// there. It sends a form, which every version of envd takes.
func (c *Client) Upload(ctx context.Context, path string, content io.Reader) error {
	var frame bytes.Buffer
	form := multipart.NewWriter(&frame)
	if _, err := form.CreateFormFile("file", "file"); err != nil {
		return fmt.Errorf("make a form: %w", err)
	}
	before := bytes.Clone(frame.Bytes())
	frame.Reset()
	if err := form.Close(); err != nil {
		return fmt.Errorf("make a form: %w", err)
	}
	body := io.MultiReader(bytes.NewReader(before), content, &frame)
	resp, err := c.endpoint.Send(ctx, http.MethodPost, c.files(path), http.Header{"Content-Type": {form.FormDataContentType()}}, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)); err != nil {
		return e2bhttp.Lost(err)
	}
	return nil
}

func (c *Client) files(path string) string {
	query := url.Values{"path": {path}}
	if c.user != "" {
		query.Set("username", c.user)
	}
	return "/files?" + query.Encode()
}
