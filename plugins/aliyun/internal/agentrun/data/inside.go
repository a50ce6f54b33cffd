package data

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
)

// RunCommand runs a command of the shell and waits for its end. The service stops it
// after timeout, of whole seconds up to 30.
func (c *Client) RunCommand(ctx context.Context, id, command, cwd string, timeout time.Duration) (agentrun.CommandResult, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+5*time.Second)
	defer cancel()
	var r agentrun.CommandResult
	err := c.json(ctx, http.MethodPost, path(id, "/processes/cmd"), map[string]any{"command": command, "cwd": cwd, "timeout": int(timeout.Seconds())}, &r)
	return r, whole(err, r.Result != nil)
}

// Upload writes a file.
func (c *Client) Upload(ctx context.Context, id, file string, content []byte) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	err := w.WriteField("path", file)
	if err == nil {
		var part io.Writer
		if part, err = w.CreateFormFile("file", "content"); err == nil {
			_, err = part.Write(content)
		}
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return c.send(ctx, http.MethodPost, path(id, "/filesystem/upload"), w.FormDataContentType(), form.Bytes(), nil)
}

// Download opens a file. The reader ends with ctx.
func (c *Client) Download(ctx context.Context, id, file string) (io.ReadCloser, error) {
	resp, err := c.open(ctx, http.MethodGet, path(id, "/filesystem/download?"+url.Values{"path": {file}}.Encode()), "", nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Disposition") != "" {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, agentrun.MaxAnswer))
	if err == nil {
		err = agentrun.Read(resp.StatusCode, resp.Header, answer, nil)
	}
	if err == nil {
		err = errors.New("the service answered something else than a file")
	}
	return nil, err
}

// CreateContext starts a kernel.
func (c *Client) CreateContext(ctx context.Context, id, language, cwd string) (agentrun.Context, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var made agentrun.Context
	err := c.json(ctx, http.MethodPost, path(id, "/contexts"), map[string]string{"language": language, "cwd": cwd}, &made)
	if err == nil && made.ID == "" {
		err = errors.New("the service has given the context no ID")
	}
	return made, err
}

// ListContexts returns the kernels of a sandbox.
func (c *Client) ListContexts(ctx context.Context, id string) ([]agentrun.Context, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var all []agentrun.Context
	err := c.json(ctx, http.MethodGet, path(id, "/contexts"), nil, &all)
	return all, err
}

// DeleteContext ends a kernel and what runs in it.
func (c *Client) DeleteContext(ctx context.Context, id, contextID string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.json(ctx, http.MethodDelete, path(id, "/contexts/"+url.PathEscape(contextID)), nil, nil)
}

// ExecuteCode runs code in a kernel and waits for its end, for whole seconds up to 30.
// Whether the code ends at that time is the service's business.
func (c *Client) ExecuteCode(ctx context.Context, id, contextID, code string, timeout time.Duration) (agentrun.CodeResult, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+5*time.Second)
	defer cancel()
	var r agentrun.CodeResult
	err := c.json(ctx, http.MethodPost, path(id, "/contexts/execute"), map[string]any{"code": code, "contextId": contextID, "timeout": int(timeout.Seconds())}, &r)
	return r, whole(err, r.Results != nil)
}
