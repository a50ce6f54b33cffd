package opensandbox

import (
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"path"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// upload writes files. Each is two parts of a form: where it goes, as metadata, and its
// content, which is written as it comes. The first file belongs to the first metadata,
// and so on; what is said of a file comes before it. What came before a mistake is
// written.
func (d execd) upload(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	info, err := d.sandbox(r.Context(), c.Tenant, c.Path["id"])
	if err != nil {
		return err
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return rest.BadRequest(http.StatusUnsupportedMediaType, "The body must not be compressed.")
	}
	form, err := r.MultipartReader()
	if err != nil {
		return refused("body", "must be a form of the type multipart/form-data")
	}
	err = eachUpload(form, func(to fileMetadata, content io.Reader) error {
		mode, err := d.uploadMode(r.Context(), c.Tenant, info, to)
		if err != nil {
			return err
		}
		req := sdk.WriteFileRequest{Path: pathOf(to.Path), Mode: mode, MakeParents: true}
		_, err = lending.WriteFile(r.Context(), d.instances, c.Tenant, info.ID.String(), req, content)
		return err
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
	return nil
}

// newFileMode is that of a file that was not there, and whose sender says nothing: with
// OpenSandbox's own daemon a program that was uploaded can be run.
const newFileMode = 0o755

// uploadMode is what the file is to have; 0 for what it has.
func (d execd) uploadMode(ctx context.Context, who tenant.Tenant, info instance.Info, to fileMetadata) (fs.FileMode, error) {
	mode, err := to.check()
	if err != nil || mode != 0 {
		return mode, err
	}
	err = lending.Use(ctx, d.instances, who, info.ID.String(), sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		_, err := files.StatFile(ctx, instanceID, pathOf(to.Path))
		return err
	})
	if isNotFound(err) {
		return newFileMode, nil
	}
	return 0, err
}

// Bounds of a form.
const (
	// maxMetadata bounds what is said of one file, in bytes.
	maxMetadata = 64 << 10
	// maxWaiting bounds how many files may be told of before the first of them comes.
	maxWaiting = 100
)

// fileMetadata says where a file goes.
type fileMetadata struct {
	Path string `json:"path"`
	permission
}

// eachUpload calls take for each file of a form, with what was said of it.
func eachUpload(form *multipart.Reader, take func(to fileMetadata, content io.Reader) error) error {
	var waiting []fileMetadata
	for files := 0; ; {
		part, err := form.NextRawPart() // a transfer encoding is no part of a file
		// A form that breaks off wraps io.EOF, and one that ends does not.
		ended := err == io.EOF //nolint:errorlint
		switch {
		case ended && files > 0 && len(waiting) == 0:
			return nil
		case ended:
			return errParts
		case err != nil:
			return errForm
		}
		switch part.FormName() {
		case "metadata":
			to, err := readMetadata(part)
			if err != nil {
				return err
			}
			if waiting = append(waiting, to); len(waiting) > maxWaiting {
				return refused("metadata", "of more than %d files comes before the first of them; send each file behind its metadata", maxWaiting)
			}
		case "file":
			if len(waiting) == 0 {
				return errParts
			}
			to := waiting[0]
			waiting = waiting[1:]
			if err := take(to, part); err != nil {
				return err
			}
			files++
		}
	}
}

var (
	errParts = refused("body", "must have parts named metadata and file, as many of each, and each file behind its metadata")
	errForm  = refused("body", "is not a whole form of the type multipart/form-data")
)

func readMetadata(part io.Reader) (to fileMetadata, err error) {
	text, err := io.ReadAll(io.LimitReader(part, maxMetadata+1))
	if err != nil {
		return to, errForm
	}
	if len(text) > maxMetadata || json.Unmarshal(text, &to) != nil {
		return to, refused("metadata", "must be a JSON object with a path, of at most %d bytes", maxMetadata)
	}
	if to.Path == "" {
		return to, refused("metadata.path", "is required")
	}
	return to, nil
}

// download reads a file: its bytes, a range of them, or some of its lines.
func (d execd) download(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	query, err := frontdoor.Query(c.RawQuery)
	if err != nil || query.Get("path") == "" {
		return refused("path", "is required")
	}
	name := pathOf(query.Get("path"))
	info, err := d.sandbox(r.Context(), c.Tenant, c.Path["id"])
	if err != nil {
		return err
	}
	if !query.Has("offset") && !query.Has("limit") {
		if first, _, several := strings.Cut(r.Header.Get("Range"), ","); several { // only the first is served
			r.Header.Set("Range", first)
		}
		return lending.ServeFile(w, r, d.instances, c.Tenant, info.ID.String(), name)
	}
	if r.Header.Get("Range") != "" {
		return refused("offset", "and limit are of lines, and do not go with a range of bytes")
	}
	first, err := numberOf(query, "offset", 1, 1<<30)
	if err != nil {
		return err
	}
	limit, err := numberOf(query, "limit", 1<<30, 1<<30)
	if err != nil {
		return err
	}
	return lending.ReadFile(r.Context(), d.instances, c.Tenant, info.ID.String(), sdk.ReadFileRequest{Path: name}, func(file sdk.FileInfo, content io.Reader) error {
		lending.Attach(w, "text/plain; charset=utf-8", path.Base(file.Path))
		if r.Method == http.MethodHead {
			return nil
		}
		return lending.Send(w, frontdoor.NewLines(content, first-1, limit))
	})
}
