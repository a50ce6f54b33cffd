package aliyunfake

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
)

// inside has the sandbox do something.
func (c *Cloud) inside(r *http.Request, body []byte, id, action string) answer {
	c.mu.Lock()
	b := c.boxes[id]
	gone := b == nil || b.status == agentrun.StatusTerminated
	paused := !gone && b.status == agentrun.StatusPaused
	c.mu.Unlock()
	switch {
	case gone:
		return fail(404, "ERR_NOT_FOUND", "sandbox not found")
	case paused:
		return fail(409, "ERR_BAD_REQUEST", "sandbox is paused")
	}
	request, bad := requestOf(r, body, action)
	if bad != nil {
		return *bad
	}
	got, err := b.ask(request)
	if err != nil {
		return fail(502, "ERR_INTERNAL_SERVER_ERROR", err.Error())
	}
	var refused struct {
		Status int `json:"httpStatus"`
		Error  any `json:"error"`
	}
	if json.Unmarshal(got, &refused) == nil && refused.Status != 0 {
		return answer{refused.Status, map[string]any{"error": refused.Error}}
	}
	if action == "Download" {
		var file struct {
			Content []byte `json:"content"`
		}
		if err := json.Unmarshal(got, &file); err != nil {
			return fail(500, "ERR_INTERNAL_SERVER_ERROR", err.Error())
		}
		return answer{200, file.Content}
	}
	return answer{200, got}
}

// Kernels counts those of all sandboxes that live.
func (c *Cloud) Kernels() (int, error) {
	c.mu.Lock()
	var alive []*box
	for _, b := range c.boxes {
		if b.status == agentrun.StatusReady {
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

// requestOf checks a request and puts it into the words of inside.py.
func requestOf(r *http.Request, body []byte, action string) (map[string]any, *answer) {
	invalid := func(message string) (map[string]any, *answer) {
		a := answer{400, map[string]any{"error": map[string]any{"code": "INVALID_REQUEST", "message": message}}}
		return nil, &a
	}
	var in struct {
		Command, Cwd, Code, Language, ContextID string
		Timeout                                 *int
	}
	if len(body) > 0 && action != "Upload" && json.Unmarshal(body, &in) != nil {
		return invalid("not JSON")
	}
	timeout := 30
	if in.Timeout != nil {
		timeout = *in.Timeout
	}
	if timeout < 1 || timeout > 30 {
		return invalid("timeout must be from 1 to 30 seconds")
	}
	switch action {
	case "Upload":
		r.Body = io.NopCloser(bytes.NewReader(body))
		file, _, err := r.FormFile("file")
		if err != nil {
			return invalid(err.Error())
		}
		content, err := io.ReadAll(file)
		if err != nil {
			return invalid(err.Error())
		}
		if len(content) > 100<<20 {
			return nil, &answer{413, map[string]any{"error": map[string]any{"code": "TOO_LARGE", "message": "at most 100 MB"}}}
		}
		return map[string]any{"do": "upload", "path": r.FormValue("path"), "content": base64.StdEncoding.EncodeToString(content)}, nil
	case "Download":
		return map[string]any{"do": "download", "path": r.URL.Query().Get("path")}, nil
	case "CreateContext":
		if in.Language != "python" && in.Language != "javascript" {
			return invalid("language must be python or javascript")
		}
		return map[string]any{"do": "create_context", "language": in.Language, "cwd": in.Cwd}, nil
	case "ListContexts":
		return map[string]any{"do": "list_contexts"}, nil
	case "DeleteContext":
		return map[string]any{"do": "delete_context", "id": r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]}, nil
	case "ExecuteCode":
		if in.Code == "" || (in.Language == "") == (in.ContextID == "") {
			return invalid("code, and one of language and contextId, are required")
		}
		if in.Language != "" {
			return invalid("the fake runs code in contexts only")
		}
		return map[string]any{"do": "execute", "id": in.ContextID, "code": in.Code, "timeout": timeout}, nil
	}
	if in.Command == "" {
		return invalid("a command is required")
	}
	return map[string]any{"do": "command", "command": in.Command, "cwd": in.Cwd, "timeout": timeout}, nil
}

// freeze pauses or resumes a sandbox.
func (c *Cloud) freeze(id string, freeze bool) answer {
	c.mu.Lock()
	b := c.boxes[id]
	gone := b == nil || b.status == agentrun.StatusTerminated
	c.mu.Unlock()
	if gone {
		return fail(404, "ERR_NOT_FOUND", "sandbox not found")
	}
	do, status := "resume", agentrun.StatusReady
	if freeze {
		do, status = "pause", agentrun.StatusPaused
	}
	if _, err := b.ask(map[string]any{"do": do}); err != nil {
		return fail(500, "ERR_INTERNAL_SERVER_ERROR", err.Error())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.status == agentrun.StatusTerminated {
		return fail(404, "ERR_NOT_FOUND", "sandbox not found")
	}
	b.status = status
	return good(b.object())
}
