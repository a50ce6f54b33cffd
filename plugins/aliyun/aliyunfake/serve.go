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
	asked := askOf(r)
	// Who has an answer may ask for the next thing before this function is over.
	leave := c.enter(r, asked.action)
	defer leave()
	fault, met := c.meet(asked.action)
	cuts := fault.Half || fault.Cut > 0 || fault.Short
	if met && !fault.After && !cuts {
		leave()
		fault.write(w)
		return
	}
	record := httptest.NewRecorder()
	a := c.answer(r, body, asked)
	record.Code = a.status
	text, raw := a.body.([]byte)
	if !raw && a.body != nil {
		if text, err = json.Marshal(a.body); err != nil {
			panic(err)
		}
	}
	switch {
	case met && fault.Stall:
		<-r.Context().Done()
		return
	case met && fault.After:
		leave()
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
	leave()
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

// ask is what a request asks for. An action of "" is one that there is not.
type ask struct {
	action string
	// name is that of the template or sandbox in the path, context that of a kernel.
	name, context string
	control       bool
}

// routes are all paths, with their methods. A path is what it is: neither a slash more
// nor one less is the same.
var routes = map[string]string{
	"GET " + prefix + "/templates":          "ListTemplates",
	"POST " + prefix + "/templates":         "CreateTemplate",
	"GET " + prefix + "/templates/*":        "GetTemplate",
	"GET " + prefix + "/sandboxes":          "ListSandboxes",
	"PUT " + prefix + "/sandboxes/*/pause":  "PauseSandbox",
	"PUT " + prefix + "/sandboxes/*/resume": "ResumeSandbox",
	"POST /sandboxes":                       "CreateSandbox",
	"GET /sandboxes/*":                      "GetSandbox",
	"DELETE /sandboxes/*":                   "DeleteSandbox",
	"GET /sandboxes/*/health":               "Health",
	"POST /sandboxes/*/processes/cmd":       "Command",
	"POST /sandboxes/*/filesystem/upload":   "Upload",
	"GET /sandboxes/*/filesystem/download":  "Download",
	"GET /sandboxes/*/contexts":             "ListContexts",
	"POST /sandboxes/*/contexts":            "CreateContext",
	"POST /sandboxes/*/contexts/execute":    "ExecuteCode",
	"DELETE /sandboxes/*/contexts/*":        "DeleteContext",
}

// askOf finds out what is asked for.
func askOf(r *http.Request) ask {
	path, _, _ := strings.Cut(r.RequestURI, "?") // as it came over the wire
	parts := strings.Split(path, "/")            // the first one is empty
	a := ask{control: strings.HasPrefix(path, prefix+"/")}
	first := 2 // where a name stands
	if a.control {
		first++
	}
	if len(parts) > first {
		a.name, parts[first] = parts[first], "*"
	}
	if len(parts) == first+3 && parts[first+1] == "contexts" && parts[first+2] != "execute" {
		a.context, parts[first+2] = parts[first+2], "*"
	}
	if a.name != "" || len(parts) == first {
		a.action = routes[r.Method+" "+strings.Join(parts, "/")]
	}
	return a
}

func (c *Cloud) answer(r *http.Request, body []byte, a ask) answer {
	if a.action == "" || a.control && r.Header.Get("Agentrun-Authorization") != "" {
		return fail(400, "ERR_BAD_REQUEST", "Invalid request uri")
	}
	if a.control {
		if status, code := c.verifyControl(r, body, a.action); status != 0 {
			return answer{status, map[string]any{"Code": code, "Message": "refused", "RequestId": "1C5B-FAKE", "HostId": r.Host}}
		}
	} else if !c.verifyData(r) {
		return fail(403, "ERR_FORBIDDEN", "Signature verification failed")
	}
	if (r.Method == http.MethodGet || r.Method == http.MethodDelete) && len(body) > 0 {
		return fail(400, "ERR_BAD_REQUEST", "there must be no body")
	}
	switch a.action {
	case "ListTemplates":
		return good(map[string]any{"items": []any{}, "pageNumber": 1, "pageSize": 1, "total": 0})
	case "GetTemplate":
		return c.getTemplate(a.name)
	case "CreateTemplate":
		return c.createTemplate(r, body)
	case "ListSandboxes":
		return c.list(r)
	case "CreateSandbox":
		return c.create(r, body)
	case "PauseSandbox", "ResumeSandbox":
		return c.freeze(a.name, a.action == "PauseSandbox")
	case "GetSandbox", "DeleteSandbox", "Health":
		return c.sandbox(a.name, a.action)
	}
	return c.inside(r, body, a)
}

func (c *Cloud) getTemplate(name string) answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.templates[name]
	if t == nil {
		return fail(404, "ERR_NOT_FOUND", "template "+name+" does not exist")
	}
	status := statusReady
	switch {
	case t.gets > 0:
		t.gets--
		status = statusCreating
	case t.fail:
		status = "CREATE_FAILED"
	}
	return good(map[string]any{"templateName": name, "templateType": t.input.TemplateType, "status": status, "sandboxIdleTimeoutInSeconds": "600"})
}

func (c *Cloud) createTemplate(r *http.Request, body []byte) answer {
	var in templateInput
	problem := strict(r, body, &in)
	if problem == "" {
		problem = in.problem()
	}
	if problem != "" {
		return fail(400, "ERR_VALIDATION_FAILED", problem)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.templates[in.TemplateName] != nil {
		return fail(409, "ERR_BAD_REQUEST", "template already exists")
	}
	c.templates[in.TemplateName] = &template{input: in, gets: 1}
	return good(map[string]any{"templateName": in.TemplateName, "templateType": in.TemplateType, "status": statusCreating})
}

func (b *box) object() map[string]any {
	return map[string]any{
		"sandboxId": b.id, "templateName": b.template, "status": b.status, "createdAt": b.created.Format(time.RFC3339),
		"sandboxIdleTimeoutSeconds": strconv.Itoa(int(b.idle.Seconds())),
	}
}

func (c *Cloud) create(r *http.Request, body []byte) answer {
	var in sandboxInput
	if problem := strict(r, body, &in); problem != "" {
		return fail(400, "ERR_VALIDATION_FAILED", problem)
	}
	idle := int64(1800) // what the clients send for a template, by default
	for _, given := range []*int64{in.SandboxIdleTimeoutSeconds, in.SandboxIdleTimeoutInSeconds} {
		if given != nil {
			idle = *given
		}
	}
	if in.TemplateName == "" || idle < 1 || idle > int64(lifetime.Seconds()) {
		return fail(400, "ERR_VALIDATION_FAILED", "bad sandbox")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep()
	if c.templates[in.TemplateName] == nil {
		return fail(404, "ERR_NOT_FOUND", "template does not exist")
	}
	if in.SandboxID == "" {
		in.SandboxID = fmt.Sprintf("01KE8DAJ35JC8SKP9C%08d", c.made)
	}
	if c.boxes[in.SandboxID] != nil {
		return fail(409, "ERR_BAD_REQUEST", "sandbox already exists")
	}
	b := &box{number: c.made, id: in.SandboxID, template: in.TemplateName, status: statusReady, created: c.now(), used: c.now(), idle: time.Duration(idle) * time.Second}
	if err := b.start(c.options); err != nil {
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
	c.sweep()
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
	c.sweep()
	b := c.boxes[id]
	if b == nil || b.status == statusTerminated {
		return fail(404, "ERR_NOT_FOUND", "sandbox not found")
	}
	switch action {
	case "Health":
		if b.status == statusPaused {
			return fail(409, "ERR_BAD_REQUEST", "sandbox is paused")
		}
		b.used = c.now()
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
