package api

import "time"

// CreateContextRequest asks for a context.
type CreateContextRequest struct {
	Language string            `json:"language" minLength:"1" maxLength:"64" doc:"python or javascript, or what the provider has contexts for." example:"python"`
	Cwd      string            `json:"cwd,omitempty" minLength:"1" maxLength:"4096" doc:"The directory that it starts in, in the instance. Default: /workspace, which a relative one is below."`
	Env      map[string]string `json:"env,omitempty" maxProperties:"100" doc:"Environment variables, over those of the instance."`
}

// Context is an interpreter in an instance that keeps its state.
type Context struct {
	_         struct{}  `additionalProperties:"true"`
	ID        string    `json:"id" doc:"Of this instance's contexts." example:"python-1"`
	Language  string    `json:"language"`
	Cwd       string    `json:"cwd" doc:"Where it started."`
	CreatedAt time.Time `json:"created_at"`
	Busy      bool      `json:"busy" doc:"Whether code runs in it."`
}

// ContextList holds the contexts of an instance, oldest first.
type ContextList struct {
	_        struct{}  `additionalProperties:"true"`
	Contexts []Context `json:"contexts" nullable:"false"`
}

// ArtifactRequest says which files come back.
type ArtifactRequest struct {
	Files []string `json:"files,omitempty" maxItems:"20" nullable:"false" doc:"Names below /workspace, or patterns: * and ? stand for a part of a name, ** for any directories. New and changed files below /workspace/artifacts come in any case." example:"[\"out/*.csv\"]"`
}

// Artifact is something that an execution made beside its output. It has text,
// base64 or refused.
type Artifact struct {
	_        struct{} `additionalProperties:"true"`
	Kind     string   `json:"kind" enum:"result,display,file" doc:"result: the value of the last expression, in a context; display: what the code showed; file. Values may be added."`
	Name     string   `json:"name,omitempty" doc:"Of a file, relative to /workspace."`
	MIMEType string   `json:"mime_type,omitempty" example:"image/png"`
	Group    int      `json:"group" doc:"Representations of one value have the same number, from 1."`
	Size     int64    `json:"size" doc:"In bytes, of the whole."`
	Text     *string  `json:"text,omitempty" doc:"The content, if its type is one of text and it is UTF-8, or if it is empty."`
	Base64   []byte   `json:"base64,omitempty" doc:"Else the content."`
	Refused  string   `json:"refused,omitempty" doc:"Why the content is not here, in a sentence."`
}
