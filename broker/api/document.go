package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-broker/sandbox-broker/broker/api/sse"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// document grows with the operations that are registered and is then the
// OpenAPI document. It is made with huma's model and its schemas of Go types;
// huma's routing is not used.
type document struct {
	openapi *huma.OpenAPI
	text    openAPIText
}

// openAPIText is the document itself as an answer: an object, already written.
type openAPIText []byte

// Schema implements huma.SchemaProvider.
func (openAPIText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

func (t openAPIText) encode() ([]byte, error) { return t, nil }

func newDocument() *document {
	return &document{openapi: &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title:       "Sandbox broker",
			Version:     "1",
			Description: "Runs code in sandboxes of many providers behind one API.\n\n" + CodesAsText(),
		},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"bearer": {Type: "http", Scheme: "bearer"},
				"apiKey": {Type: "apiKey", In: "header", Name: headerAPIKey},
			},
		},
		Tags: []*huma.Tag{
			{Name: tagExecute, Description: "Run code."},
			{Name: tagInstances, Description: "Sandboxes that live longer than one execution."},
			{Name: tagContexts, Description: "Interpreters in an instance that keep their state between executions."},
			{Name: tagCommands, Description: "Programs in an instance, which may outlive the request that started them."},
			{Name: tagFiles, Description: "The files of an instance."},
			{Name: tagPorts, Description: "Servers that run in an instance."},
			{Name: tagProviders, Description: "What can run here."},
			{Name: tagAdmin, Description: "For administrators, whose tokens are not those of tenants."},
			{Name: tagBroker, Description: "The broker itself."},
		},
	}}
}

// CodesAsText returns the table of codes in Markdown, for the document and for
// the page about errors.
func CodesAsText() string {
	var b strings.Builder
	b.WriteString("| code | meaning | HTTP status | retry | what to do |\n| --- | --- | --- | --- | --- |\n")
	for _, info := range sdk.CodeTable() {
		status := strconv.Itoa(info.HTTPStatus)
		if info.HTTPStatus == http.StatusOK {
			status = "200, in the result"
		}
		if info.Code == sdk.CodeConflict {
			status = "409, 422"
		}
		if info.Code == sdk.CodeInvalidRequest {
			status = "400, 405, 408, 413, 415, 416, 422, 431"
		}
		retry := "no"
		if info.Retryable {
			retry = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", info.Code, info.Title, status, retry, info.Advice)
	}
	return b.String()
}

func (d *document) schemas() huma.Registry { return d.openapi.Components.Schemas }

func (d *document) schemaOf(t reflect.Type) *huma.Schema {
	return d.schemas().Schema(t, true, t.Name())
}

// pathParameter finds the parameters in a path, which pathParameters describes.
var pathParameter = regexp.MustCompile(`\{([a-z]+)\}`)

var pathParameters = map[string]string{
	"id":        "An instance's ID.",
	"context":   "A context's ID.",
	"command":   "A command's ID.",
	"execution": "An execution's ID.",
	"label":     "A provider's label in the configuration.",
	"port":      "A TCP port in the instance.",
	"path":      "Any path of the program's, slashes included.",
	"token":     "What a preview link was made with.",
}

func (d *document) add(op operation, in, out reflect.Type, body *decoder) {
	path := strings.Replace(op.path, "*", "{path}", 1)
	described := &huma.Operation{
		Method:      op.method,
		Path:        path,
		OperationID: op.id,
		Summary:     op.summary,
		Description: op.details,
		Tags:        []string{op.tag},
		Responses:   map[string]*huma.Response{},
		Parameters: []*huma.Param{{
			Name: headerRequestID, In: "header", Description: "Your own ID of this request, for the logs.",
			Schema: &huma.Schema{Type: huma.TypeString, Pattern: requestIDForm.String()},
		}},
	}
	if op.takesKey() && !op.streams {
		described.Parameters = append(described.Parameters, &huma.Param{
			Name: headerIdempotencyKey, In: "header",
			Description: "Your own name for this request. The same request with the same key within 24 hours is not carried out again but given the same answer, with the header " + headerReplayed + ".",
			Schema:      &huma.Schema{Type: huma.TypeString, Pattern: keyForm.String()},
		})
	}
	for _, match := range pathParameter.FindAllStringSubmatch(path, -1) {
		described.Parameters = append(described.Parameters, &huma.Param{
			Name: match[1], In: "path", Required: true, Description: pathParameters[match[1]],
			Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	if op.conditional {
		described.Parameters = append(described.Parameters, &huma.Param{
			Name: "If-Match", In: "header", Description: "An ETag of the configuration: SB014 if it is another one by now. Without it, or with *, any will do.",
			Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	for _, p := range op.query {
		described.Parameters = append(described.Parameters, p.describe())
	}
	switch {
	case op.consumes != "":
		described.RequestBody = &huma.RequestBody{Required: op.consumes != anyMediaType, Content: binary(op.consumes)}
	case body != nil:
		described.RequestBody = &huma.RequestBody{
			Required: body.bodyRequired(),
			Content:  map[string]*huma.MediaType{"application/json": {Schema: d.schemaOf(in)}},
		}
	}
	if op.public {
		described.Security = []map[string][]string{} // none
	} else {
		described.Security = []map[string][]string{{"bearer": {}}, {"apiKey": {}}}
	}
	for _, status := range op.success {
		response := &huma.Response{Description: http.StatusText(status), Headers: requestIDHeader()}
		if op.tagged {
			response.Headers["ETag"] = &huma.Param{Description: "The revision of the configuration.", Schema: &huma.Schema{Type: huma.TypeString}}
		}
		switch {
		case op.produces != "":
			response.Content = binary(op.produces)
		case out != nil && out != reflect.TypeFor[none]():
			response.Content = map[string]*huma.MediaType{"application/json": {Schema: d.schemaOf(out)}}
		}
		if len(op.events) > 0 && status == http.StatusOK {
			if response.Content == nil {
				response.Content = map[string]*huma.MediaType{}
			}
			response.Content[sse.MediaType] = d.eventsOf(op)
		}
		described.Responses[strconv.Itoa(status)] = response
	}
	d.addProblems(described, op, body != nil)
	d.openapi.AddOperation(described)
}

// eventsOf describes one event of an answer, which has many.
func (d *document) eventsOf(op operation) *huma.MediaType {
	one := &huma.Schema{Description: "One event of the stream. data is JSON."}
	for _, e := range op.events {
		one.OneOf = append(one.OneOf, &huma.Schema{
			Type: huma.TypeObject, Description: e.doc, Required: []string{"event", "data"},
			Properties: map[string]*huma.Schema{
				"event": {Type: huma.TypeString, Enum: []any{e.name}},
				"data":  d.schemaOf(e.data),
			},
		})
	}
	return &huma.MediaType{Schema: one}
}

// binary is a body that is no JSON.
func binary(mediaType string) map[string]*huma.MediaType {
	content := &huma.Schema{Type: huma.TypeString, Format: "binary"}
	switch mediaType {
	case mediaTar: // whatever it is called: the broker looks
		return map[string]*huma.MediaType{mediaTar: {Schema: content}, "application/gzip": {Schema: content}}
	case mediaForm:
		files := &huma.Schema{Type: huma.TypeArray, Items: content}
		content = &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{"files": files}, AdditionalProperties: files}
	}
	return map[string]*huma.MediaType{mediaType: {Schema: content}}
}

// addProblems lists the refusals, one response for each status with its codes.
func (d *document) addProblems(described *huma.Operation, op operation, hasBody bool) {
	codes := map[int][]sdk.Code{http.StatusInternalServerError: {sdk.CodeInternal}}
	refuse := func(code sdk.Code, statuses ...int) {
		for _, status := range statuses {
			codes[status] = append(codes[status], code)
		}
	}
	if !op.public {
		refuse(sdk.CodeNotAuthenticated, http.StatusUnauthorized)
	}
	if op.admin {
		refuse(sdk.CodeNotAllowed, http.StatusForbidden)
	}
	if !op.public && !op.admin && !slices.Contains(op.codes, sdk.CodeQuotaExceeded) {
		refuse(sdk.CodeQuotaExceeded, http.StatusTooManyRequests)
	}
	if hasBody {
		refuse(sdk.CodeInvalidRequest, http.StatusBadRequest, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity)
	}
	if !op.anyQuery { // each parameter is checked, and others are refused
		refuse(sdk.CodeInvalidRequest, http.StatusBadRequest, http.StatusUnprocessableEntity)
	}
	if strings.Contains(op.path, "{port}") {
		refuse(sdk.CodeInvalidRequest, http.StatusUnprocessableEntity)
	}
	if slices.Contains(op.success, http.StatusPartialContent) {
		refuse(sdk.CodeInvalidRequest, http.StatusRequestedRangeNotSatisfiable)
	}
	for _, code := range op.codes {
		refuse(code, code.Info().HTTPStatus)
	}
	if op.takesKey() && !op.streams {
		refuse(sdk.CodeConflict, http.StatusConflict, http.StatusUnprocessableEntity)
		refuse(sdk.CodeInvalidRequest, http.StatusBadRequest, http.StatusUnprocessableEntity)
		refuse(sdk.CodeUnavailable, http.StatusServiceUnavailable)
		refuse(sdk.CodeQuotaExceeded, http.StatusTooManyRequests)
	}
	for status, list := range codes {
		slices.Sort(list)
		list = slices.Compact(list)
		var meanings []string
		for _, code := range list {
			meanings = append(meanings, string(code)+": "+code.Info().Title)
		}
		response := &huma.Response{
			Description: strings.Join(meanings, "; "),
			Headers:     requestIDHeader(),
			Content:     map[string]*huma.MediaType{problemType: {Schema: d.schemaOf(reflect.TypeFor[Problem]())}},
		}
		if status == http.StatusTooManyRequests {
			response.Headers["Retry-After"] = &huma.Param{Description: "Seconds.", Schema: &huma.Schema{Type: huma.TypeInteger}}
		}
		described.Responses[strconv.Itoa(status)] = response
	}
}

func requestIDHeader() map[string]*huma.Param {
	return map[string]*huma.Param{headerRequestID: {Schema: &huma.Schema{Type: huma.TypeString}}}
}

// finish writes the document. Nothing may be registered afterwards.
func (d *document) finish() error {
	compact, err := json.Marshal(d.openapi)
	if err != nil {
		return fmt.Errorf("write the OpenAPI document: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, compact, "", "  "); err != nil {
		return fmt.Errorf("write the OpenAPI document: %w", err)
	}
	d.text = b.Bytes()
	return nil
}
