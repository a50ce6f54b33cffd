package rest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

// About is what an OpenAPI document says beside its operations.
type About struct {
	Title, Version, Description string
	Tags                        []Tag
	// Parameters describes what stands in paths, by name.
	Parameters map[string]string
	// Problem is the type of the body of problems, with its media type. Unless given:
	// Refusal, as application/problem+json.
	Problem   reflect.Type
	MediaType string
	// Schemas are those of types that do not say it by their tags.
	Schemas map[reflect.Type]reflect.Type
}

// Tag groups operations.
type Tag struct{ Name, Description string }

// The types that a document is made with are huma's.
type (
	// Schema of a type that implements SchemaProvider.
	Schema = huma.Schema
	// SchemaProvider is a type that has a schema of its own.
	SchemaProvider = huma.SchemaProvider
	// Registry has the schemas of other types.
	Registry = huma.Registry
)

// document grows with the operations that are registered and is then the
// OpenAPI document. It is made with huma's model and its schemas of Go types;
// huma's routing is not used.
type document struct {
	about   About
	openapi *huma.OpenAPI
}

// Document is an OpenAPI document as an answer: an object, already written.
type Document []byte

// Schema implements huma.SchemaProvider.
func (Document) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// EncodeJSON implements Encoder.
func (d Document) EncodeJSON() ([]byte, error) { return d, nil }

func newDocument(about About) *document {
	d := &document{about: about, openapi: &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info:    &huma.Info{Title: about.Title, Version: about.Version, Description: about.Description},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"bearer": {Type: "http", Scheme: "bearer"},
				"apiKey": {Type: "apiKey", In: "header", Name: HeaderAPIKey},
			},
		},
	}}
	for _, tag := range about.Tags {
		d.openapi.Tags = append(d.openapi.Tags, &huma.Tag{Name: tag.Name, Description: tag.Description})
	}
	for t, alias := range about.Schemas {
		d.schemas().RegisterTypeAlias(t, alias)
	}
	return d
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

// pathParameter finds the parameters in a path.
var pathParameter = regexp.MustCompile(`\{([a-z]+)\}`)

func (d *document) add(op Operation, in, out reflect.Type, body *decoder) {
	path := strings.Replace(op.Path, "*", "{path}", 1)
	described := &huma.Operation{
		Method:      op.Method,
		Path:        path,
		OperationID: op.ID,
		Summary:     op.Summary,
		Description: op.Details,
		Tags:        []string{op.Tag},
		Responses:   map[string]*huma.Response{},
		Parameters: []*huma.Param{{
			Name: HeaderRequestID, In: "header", Description: "Your own ID of this request, for the logs.",
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
			Name: match[1], In: "path", Required: true, Description: d.about.Parameters[match[1]],
			Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	if op.Conditional {
		described.Parameters = append(described.Parameters, &huma.Param{
			Name: "If-Match", In: "header", Description: "An ETag of the configuration: SB014 if it is another one by now. Without it, or with *, any will do.",
			Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	if op.Continues {
		described.Parameters = append(described.Parameters, &huma.Param{
			Name: headerLastEventID, In: "header", Description: "The id of the last event that you have got: the stream goes on behind it.",
			Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	for _, p := range op.Query {
		described.Parameters = append(described.Parameters, p.describe())
	}
	switch {
	case op.Consumes != "":
		described.RequestBody = &huma.RequestBody{Required: op.Consumes != AnyMediaType, Content: binary(op.Consumes)}
	case body != nil:
		described.RequestBody = &huma.RequestBody{
			Required: body.bodyRequired(),
			Content:  map[string]*huma.MediaType{"application/json": {Schema: d.schemaOf(in)}},
		}
	}
	if op.Public {
		described.Security = []map[string][]string{} // none
	} else {
		described.Security = []map[string][]string{{"bearer": {}}, {"apiKey": {}}}
	}
	for _, status := range op.Success {
		response := &huma.Response{Description: http.StatusText(status), Headers: requestIDHeader()}
		if op.Tagged {
			response.Headers["ETag"] = &huma.Param{Description: "The revision of the configuration.", Schema: &huma.Schema{Type: huma.TypeString}}
		}
		switch {
		case op.Produces != "":
			response.Content = binary(op.Produces)
		case status == http.StatusAccepted && op.Accepted != nil:
			response.Content = map[string]*huma.MediaType{"application/json": {Schema: d.schemaOf(op.Accepted)}}
		case out != nil && out != reflect.TypeFor[None]():
			response.Content = map[string]*huma.MediaType{"application/json": {Schema: d.schemaOf(out)}}
		}
		if len(op.Events) > 0 && status == http.StatusOK {
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
func (d *document) eventsOf(op Operation) *huma.MediaType {
	one := &huma.Schema{Description: "One event of the stream. data is JSON."}
	for _, e := range op.Events {
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

// The media types of bodies that have a description of their own.
const (
	MediaTar  = "application/x-tar"
	MediaForm = "multipart/form-data"
)

// binary is a body that is no JSON.
func binary(mediaType string) map[string]*huma.MediaType {
	content := &huma.Schema{Type: huma.TypeString, Format: "binary"}
	switch mediaType {
	case MediaTar: // whatever it is called: the broker looks
		return map[string]*huma.MediaType{MediaTar: {Schema: content}, "application/gzip": {Schema: content}}
	case MediaForm:
		files := &huma.Schema{Type: huma.TypeArray, Items: content}
		content = &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{"files": files}, AdditionalProperties: files}
	}
	return map[string]*huma.MediaType{mediaType: {Schema: content}}
}

// addProblems lists the refusals, one response for each status with its codes.
func (d *document) addProblems(described *huma.Operation, op Operation, hasBody bool) {
	codes := map[int][]sdk.Code{http.StatusInternalServerError: {sdk.CodeInternal}}
	refuse := func(code sdk.Code, statuses ...int) {
		for _, status := range statuses {
			codes[status] = append(codes[status], code)
		}
	}
	if !op.Public {
		refuse(sdk.CodeNotAuthenticated, http.StatusUnauthorized)
	}
	if op.Admin {
		refuse(sdk.CodeNotAllowed, http.StatusForbidden)
	}
	if !op.Public && !op.Admin && !slices.Contains(op.Codes, sdk.CodeQuotaExceeded) {
		refuse(sdk.CodeQuotaExceeded, http.StatusTooManyRequests)
	}
	if hasBody {
		refuse(sdk.CodeInvalidRequest, http.StatusBadRequest, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity)
	}
	if !op.AnyQuery { // each parameter is checked, and others are refused
		refuse(sdk.CodeInvalidRequest, http.StatusBadRequest, http.StatusUnprocessableEntity)
	}
	if op.Unprocessable {
		refuse(sdk.CodeInvalidRequest, http.StatusUnprocessableEntity)
	}
	if slices.Contains(op.Success, http.StatusPartialContent) {
		refuse(sdk.CodeInvalidRequest, http.StatusRequestedRangeNotSatisfiable)
	}
	for _, code := range op.Codes {
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
			Content:     map[string]*huma.MediaType{cmp.Or(d.about.MediaType, ProblemType): {Schema: d.schemaOf(d.about.Problem)}},
		}
		if status == http.StatusTooManyRequests {
			response.Headers["Retry-After"] = &huma.Param{Description: "Seconds.", Schema: &huma.Schema{Type: huma.TypeInteger}}
		}
		described.Responses[strconv.Itoa(status)] = response
	}
}

func requestIDHeader() map[string]*huma.Param {
	return map[string]*huma.Param{HeaderRequestID: {Schema: &huma.Schema{Type: huma.TypeString}}}
}

// text writes the document.
func (d *document) text() (Document, error) {
	compact, err := json.Marshal(d.openapi)
	if err != nil {
		return nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, compact, "", "  "); err != nil {
		return nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	return b.Bytes(), nil
}

// SchemaOf is the schema of a type by its fields, for a SchemaProvider to start from.
func SchemaOf(r Registry, t reflect.Type) *Schema { return huma.SchemaFromType(r, t) }
