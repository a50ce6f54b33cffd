package aliyunfake

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
)

// inside has the sandbox do something.
func (c *Cloud) inside(r *http.Request, body []byte, a ask) answer {
	c.mu.Lock()
	c.sweep()
	b := c.boxes[a.name]
	gone := b == nil || b.status == statusTerminated
	paused := !gone && b.status == statusPaused
	if !gone && !paused {
		b.used = c.now()
	}
	c.mu.Unlock()
	switch {
	case gone:
		return fail(404, "ERR_NOT_FOUND", "sandbox not found")
	case paused:
		return fail(409, "ERR_BAD_REQUEST", "sandbox is paused")
	}
	request, bad := requestOf(r, body, a)
	if bad != nil {
		return *bad
	}
	got, err := b.ask(request)
	if err != nil {
		return fail(502, "ERR_INTERNAL_SERVER_ERROR", err.Error())
	}
	c.mu.Lock()
	b.used = c.now() // it was in use until now
	c.mu.Unlock()
	var refused struct {
		Status int `json:"httpStatus"`
		Error  any `json:"error"`
	}
	if json.Unmarshal(got, &refused) == nil && refused.Status != 0 {
		return answer{refused.Status, map[string]any{"error": refused.Error}}
	}
	switch a.action {
	case "Download":
		var file struct {
			Content []byte `json:"content"`
		}
		if err := json.Unmarshal(got, &file); err != nil {
			return fail(500, "ERR_INTERNAL_SERVER_ERROR", err.Error())
		}
		return answer{200, file.Content}
	case "DeleteContext":
		return answer{204, nil}
	}
	return answer{200, got}
}

// Kernels counts those of all sandboxes that live.
func (c *Cloud) Kernels() (int, error) {
	c.mu.Lock()
	var alive []*box
	for _, b := range c.boxes {
		if b.status == statusReady && b.command != nil {
			alive = append(alive, b)
		}
	}
	c.mu.Unlock()
	n := 0
	for _, b := range alive {
		var kernels []json.RawMessage
		got, err := b.ask(map[string]any{"do": "list_contexts"})
		if err == nil {
			err = json.Unmarshal(got, &kernels)
		}
		if err != nil {
			return 0, err
		}
		n += len(kernels)
	}
	return n, nil
}

// The bodies that are published for the inside of a sandbox.
type (
	commandInput struct {
		Command string `json:"command"`
		Cwd     string `json:"cwd"`
		Timeout *int   `json:"timeout"`
	}
	contextInput struct {
		Language string `json:"language"`
		Cwd      string `json:"cwd"`
	}
	codeInput struct {
		Code      string `json:"code"`
		Language  string `json:"language"`
		ContextID string `json:"contextId"`
		Timeout   *int   `json:"timeout"`
	}
)

// requestOf checks a request and puts it into the words of inside.py.
func requestOf(r *http.Request, body []byte, a ask) (map[string]any, *answer) {
	invalid := func(message string) (map[string]any, *answer) {
		return nil, &answer{400, map[string]any{"error": map[string]any{"code": "INVALID_REQUEST", "message": message}}}
	}
	var problem string
	limit := func(timeout *int) int {
		if timeout == nil {
			return 30
		}
		if *timeout < 1 || *timeout > 30 {
			problem = "timeout must be from 1 to 30 seconds"
		}
		return *timeout
	}
	var request map[string]any
	switch a.action {
	case "Upload":
		file, content, err := uploaded(r, body)
		if err != nil {
			return invalid(err.Error())
		}
		if len(content) > 100<<20 {
			return nil, &answer{413, map[string]any{"error": map[string]any{"code": "TOO_LARGE", "message": "at most 100 MB"}}}
		}
		request = map[string]any{"do": "upload", "path": file, "content": base64.StdEncoding.EncodeToString(content)}
	case "Download":
		if r.URL.Query().Get("path") == "" {
			problem = "path is required"
		}
		request = map[string]any{"do": "download", "path": r.URL.Query().Get("path")}
	case "CreateContext":
		var in contextInput
		problem = strict(r, body, &in)
		if in.Language != "python" && in.Language != "javascript" {
			problem = "language must be python or javascript"
		}
		request = map[string]any{"do": "create_context", "language": in.Language, "cwd": in.Cwd}
	case "ListContexts":
		request = map[string]any{"do": "list_contexts"}
	case "DeleteContext":
		request = map[string]any{"do": "delete_context", "id": a.context}
	case "ExecuteCode":
		var in codeInput
		problem = strict(r, body, &in)
		if in.Code == "" || (in.Language == "") == (in.ContextID == "") {
			problem = "code, and one of language and contextId, are required"
		}
		if in.Language != "" {
			problem = "the fake runs code in contexts only"
		}
		request = map[string]any{"do": "execute", "id": in.ContextID, "code": in.Code, "timeout": limit(in.Timeout)}
	default:
		var in commandInput
		problem = strict(r, body, &in)
		if in.Command == "" {
			problem = "a command is required"
		}
		request = map[string]any{"do": "command", "command": in.Command, "cwd": in.Cwd, "timeout": limit(in.Timeout)}
	}
	if problem != "" {
		return invalid(problem)
	}
	return request, nil
}

// uploaded reads the form of an upload.
func uploaded(r *http.Request, body []byte) (file string, content []byte, err error) {
	_, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return "", nil, err
	}
	form, err := multipart.NewReader(strings.NewReader(string(body)), parameters["boundary"]).ReadForm(256 << 20)
	if err != nil {
		return "", nil, err
	}
	if len(form.Value["path"]) != 1 || len(form.File["file"]) != 1 || len(form.Value) > 1 && form.Value["current_path"] == nil {
		return "", nil, errForm
	}
	part, err := form.File["file"][0].Open()
	if err != nil {
		return "", nil, err
	}
	content, err = io.ReadAll(part)
	return form.Value["path"][0], content, err
}

// freeze pauses or resumes a sandbox.
func (c *Cloud) freeze(id string, freeze bool) answer {
	c.mu.Lock()
	b := c.boxes[id]
	gone := b == nil || b.status == statusTerminated
	c.mu.Unlock()
	if gone {
		return fail(404, "ERR_NOT_FOUND", "sandbox not found")
	}
	do, status := "resume", statusReady
	if freeze {
		do, status = "pause", statusPaused
	}
	if _, err := b.ask(map[string]any{"do": do}); err != nil && !errors.Is(err, errEmpty) {
		return fail(500, "ERR_INTERNAL_SERVER_ERROR", err.Error())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.status == statusTerminated {
		return fail(404, "ERR_NOT_FOUND", "sandbox not found")
	}
	b.status, b.used = status, c.now()
	return good(b.object())
}
