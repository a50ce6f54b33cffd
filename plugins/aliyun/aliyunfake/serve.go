package aliyunfake

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
)

const prefix = "/2025-09-10"

// answer is what goes over the wire.
type answer struct {
	status int
	body   any
}

func fail(status int, code, message string) answer {
	return answer{status, map[string]any{"code": code, "requestId": "1C5B-FAKE", "message": message}}
}

func good(data any) answer {
	return answer{200, map[string]any{"code": "SUCCESS", "requestId": "1C5B-FAKE", "data": data}}
}

func (c *Cloud) serve(w http.ResponseWriter, r *http.Request) {
	if c.isBroken() {
		panic(http.ErrAbortHandler)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	action := actionOf(r)
	fault, met := c.meet(action)
	cuts := fault.Half || fault.Cut > 0 || fault.Short
	if met && !fault.After && !cuts {
		fault.write(w)
		return
	}
	record := httptest.NewRecorder()
	a := c.answer(r, body, action)
	record.Code = a.status
	text, raw := a.body.([]byte)
	if !raw {
		if text, err = json.Marshal(a.body); err != nil {
			panic(err)
		}
	}
	switch {
	case met && fault.Stall:
		<-r.Context().Done()
		return
	case met && fault.After:
		fault.write(w)
		return
	case met && cuts:
		n := min(fault.Cut, len(text))
		if fault.Half {
			n = len(text) / 2
		}
		if !fault.Short {
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		}
		text = text[:n]
	}
	w.Header().Set("Content-Type", "application/json")
	if raw {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", "attachment")
	}
	w.Header().Set("X-Acs-Request-Id", "1C5B-FAKE")
	w.WriteHeader(a.status)
	_, _ = w.Write(text) // the client may have gone
}

// write answers in the service's place.
func (f Fault) write(w http.ResponseWriter) {
	for name, value := range f.Header {
		w.Header().Set(name, value)
	}
	if f.Redirect != "" {
		w.Header().Set("Location", f.Redirect)
	}
	if f.Status == 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(f.Status)
	_, _ = io.WriteString(w, f.Body) // the client may have gone
}

// actionOf names what is asked for.
func actionOf(r *http.Request) string {
	path, control := strings.CutPrefix(r.URL.Path, prefix)
	parts := strings.Split(strings.Trim(path, "/"), "/")
	shape := r.Method + " " + parts[0]
	if len(parts) > 1 {
		shape += "/*"
	}
	if len(parts) > 2 {
		shape += "/" + strings.Join(parts[2:], "/")
	}
	if len(parts) == 4 && parts[2] == "contexts" {
		shape = r.Method + " sandboxes/*/contexts/*"
	}
	names := map[string]string{
		"POST sandboxes": "CreateSandbox", "GET sandboxes/*": "GetSandbox", "DELETE sandboxes/*": "DeleteSandbox",
		"GET sandboxes/*/health": "Health", "POST sandboxes/*/processes/cmd": "Command", "POST sandboxes/*/filesystem/upload": "Upload",
		"GET sandboxes/*/filesystem/download": "Download", "POST sandboxes/*/contexts": "CreateContext", "GET sandboxes/*/contexts": "ListContexts",
		"DELETE sandboxes/*/contexts/*": "DeleteContext", "POST sandboxes/*/contexts/execute": "ExecuteCode",
	}
	if shape == "POST sandboxes/*/contexts/*" && parts[3] == "execute" {
		shape = "POST sandboxes/*/contexts/execute"
	}
	if control {
		names = map[string]string{
			"GET templates": "ListTemplates", "GET templates/*": "GetTemplate", "POST templates": "CreateTemplate", "GET sandboxes": "ListSandboxes",
			"PUT sandboxes/*/pause": "PauseSandbox", "PUT sandboxes/*/resume": "ResumeSandbox",
		}
	}
	return names[shape]
}

func (c *Cloud) answer(r *http.Request, body []byte, action string) answer {
	if strings.HasPrefix(r.URL.Path, prefix+"/") {
		if r.Header.Get("Agentrun-Authorization") != "" {
			return fail(400, "ERR_BAD_REQUEST", "Invalid request uri")
		}
		if status, code := c.verifyControl(r, body, action); status != 0 {
			return answer{status, map[string]any{"Code": code, "Message": "refused", "RequestId": "1C5B-FAKE", "HostId": r.Host}}
		}
	} else if !c.verifyData(r) {
		return fail(403, "ERR_FORBIDDEN", "Signature verification failed")
	}
	name := r.URL.Path[strings.Index(r.URL.Path, "es")+2:]
	name = strings.Trim(name, "/")
	name, _, _ = strings.Cut(name, "/")
	switch action {
	case "ListTemplates":
		return good(map[string]any{"items": []any{}, "pageNumber": 1, "pageSize": 1, "total": 0})
	case "GetTemplate":
		return c.getTemplate(name)
	case "CreateTemplate":
		return c.createTemplate(body)
	case "ListSandboxes":
		return c.list(r)
	case "CreateSandbox":
		return c.create(body)
	case "Command", "Upload", "Download", "CreateContext", "ListContexts", "DeleteContext", "ExecuteCode":
		return c.inside(r, body, name, action)
	case "PauseSandbox", "ResumeSandbox":
		return c.freeze(name, action == "PauseSandbox")
	case "GetSandbox", "DeleteSandbox", "Health":
		return c.sandbox(name, action)
	}
	return fail(404, "ERR_NOT_FOUND", "no such path")
}

func (c *Cloud) getTemplate(name string) answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.templates[name]
	if t == nil {
		return fail(404, "ERR_NOT_FOUND", "template "+name+" does not exist")
	}
	status := agentrun.StatusReady
	switch {
	case t.gets > 0:
		t.gets--
		status = agentrun.StatusCreating
	case t.fail:
		status = "CREATE_FAILED"
	}
	return good(map[string]any{"templateName": name, "templateType": t.input.TemplateType, "status": status, "sandboxIdleTimeoutInSeconds": "600"})
}

func (c *Cloud) createTemplate(body []byte) answer {
	var in agentrun.TemplateInput
	if json.Unmarshal(body, &in) != nil || in.TemplateName == "" || in.TemplateType == "" || in.CPU == 0 || in.Memory == 0 || in.NetworkConfiguration.NetworkMode == "" {
		return fail(400, "ERR_VALIDATION_FAILED", "a required field is missing")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.templates[in.TemplateName] != nil {
		return fail(409, "ERR_BAD_REQUEST", "template already exists")
	}
	c.templates[in.TemplateName] = &template{input: in, gets: 1}
	return good(map[string]any{"templateName": in.TemplateName, "templateType": in.TemplateType, "status": agentrun.StatusCreating})
}

func (b *box) object() map[string]any {
	return map[string]any{
		"sandboxId": b.id, "templateName": b.template, "status": b.status, "createdAt": b.created.Format(time.RFC3339),
		"sandboxIdleTimeoutSeconds": strconv.FormatInt(b.idle, 10),
	}
}

func (c *Cloud) create(body []byte) answer {
	var in agentrun.SandboxInput
	if json.Unmarshal(body, &in) != nil || in.TemplateName == "" || in.SandboxIdleTimeoutSeconds < 0 || in.SandboxIdleTimeoutSeconds > 21600 {
		return fail(400, "ERR_VALIDATION_FAILED", "bad sandbox")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.templates[in.TemplateName] == nil {
		return fail(404, "ERR_NOT_FOUND", "template does not exist")
	}
	if in.SandboxID == "" {
		in.SandboxID = fmt.Sprintf("01KE8DAJ35JC8SKP9C%08d", c.made)
	}
	if c.boxes[in.SandboxID] != nil {
		return fail(409, "ERR_BAD_REQUEST", "sandbox already exists")
	}
	b := &box{number: c.made, id: in.SandboxID, template: in.TemplateName, status: agentrun.StatusReady, created: time.Now(), idle: in.SandboxIdleTimeoutSeconds}
	if err := b.start(); err != nil {
		return fail(500, "ERR_INTERNAL_SERVER_ERROR", err.Error())
	}
	c.boxes[b.id] = b
	c.order = append(c.order, b.id)
	c.made++
	return good(b.object())
}

func (c *Cloud) list(r *http.Request) answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, _ := strconv.Atoi(r.URL.Query().Get("nextToken")) // empty for the first page
	most, err := strconv.Atoi(r.URL.Query().Get("maxResults"))
	if err != nil || most < 1 || most > 1000 {
		return fail(400, "ERR_VALIDATION_FAILED", "maxResults")
	}
	items, data := []any{}, map[string]any{}
	for _, id := range c.order {
		b := c.boxes[id]
		if b == nil || b.number < from {
			continue
		}
		if len(items) == min(most, c.PageSize) {
			data["nextToken"] = strconv.Itoa(b.number)
			break
		}
		items = append(items, b.object())
	}
	data["items"] = items
	return good(data)
}

func (c *Cloud) sandbox(id, action string) answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.boxes[id]
	if b == nil || b.status == agentrun.StatusTerminated {
		return fail(404, "ERR_NOT_FOUND", "sandbox not found")
	}
	switch action {
	case "Health":
		if b.gets++; b.gets == 1 && b.number%4 == 0 {
			return answer{503, map[string]any{"error": map[string]any{"code": "NOT_READY", "message": "starting"}}}
		}
		return answer{200, map[string]any{"status": "ok", "service": "sandbox-code-interpreter", "version": "v1", "uptime": 1.5}}
	case "DeleteSandbox":
		before := b.object()
		c.end(b)
		return good(before)
	}
	return good(b.object())
}
