package api

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const mediaForm = "multipart/form-data"

// maxFormFiles is how many files one form may have; an archive may have more.
const maxFormFiles = 1000

// formRoutes are those that take what browsers and curl -F send.
func (s *Server) formRoutes() {
	receive(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/files", id: "uploadFiles", tag: tagFiles,
		summary: "Write files from a form",
		details: "The body is multipart/form-data; each part is a file, stored under its filename below the directory, in place of what is there. A filename may have directories, which are made; it may not be absolute or have .. in it. Each file appears whole or not at all. If one fails, those before it are written.",
		query: []parameter{
			{name: "directory", doc: "Where to put them; /workspace unless given."},
			{name: "mode", doc: "Permission bits, octal. Unless given, those of a file that is replaced, 0644 for a new one."},
		},
		success: []int{http.StatusOK}, codes: fileCodes(), consumes: mediaForm, streams: true,
	}, s.uploadFiles)
}

func (s *Server) uploadFiles(r *http.Request, c call[none]) (UploadedFiles, error) {
	answer := UploadedFiles{Files: []File{}}
	mode, err := modeOf(c.query.text("mode"))
	if err != nil {
		return answer, err
	}
	mediaType, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != mediaForm || parameters["boundary"] == "" {
		return answer, &requestError{status: http.StatusUnsupportedMediaType, detail: "The body must be multipart/form-data with a boundary, as curl -F sends it."}
	}
	err = upload(s, r, c, sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string, content io.Reader) error {
		return eachFile(multipart.NewReader(content, parameters["boundary"]), func(name string, content io.Reader) error {
			info, err := files.WriteFile(ctx, sdk.WriteFileRequest{
				InstanceID: instanceID, Path: path.Join(directoryOf(c), name), Mode: mode, MakeParents: true,
			}, content)
			if err == nil {
				answer.Files = append(answer.Files, fileOf(info))
			}
			return err
		})
	})
	return answer, err
}

// eachFile calls take for the files of a form, one after the other.
func eachFile(form *multipart.Reader, take func(name string, content io.Reader) error) error {
	for n := 0; ; n++ {
		part, err := form.NextRawPart() // a transfer encoding is no part of a file
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "has no file")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return badForm(err)
		case n == maxFormFiles:
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "has more than %d files; send an archive", maxFormFiles)
		}
		name, err := filenameOf(part)
		if err != nil {
			return err
		}
		if err := take(name, formContent{part}); err != nil {
			return err
		}
	}
}

// filenameOf is the whole filename: multipart's own would cut its directories off.
func filenameOf(part *multipart.Part) (string, error) {
	_, parameters, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	name := parameters["filename"]
	switch {
	case err != nil || name == "":
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "the part %.100q has no filename: each part must be a file", part.FormName())
	case path.IsAbs(name), name == "..", strings.HasPrefix(name, "../"), strings.HasSuffix(name, "/.."), strings.Contains(name, "/../"), path.Clean(name) == ".":
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "the filename %.100q must be relative, without ..", name)
	default:
		return name, nil
	}
}

// formContent is one file of a form.
type formContent struct{ io.Reader }

// Read implements io.Reader.
func (f formContent) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = badForm(err)
	}
	return n, err
}

// badForm puts into words that a form ends before its end. What a body that broke off
// is told, upload knows.
func badForm(err error) error {
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "is no whole form: %w", err)
}
