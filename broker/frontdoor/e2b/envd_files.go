package e2b

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// routeFiles carries the bytes of files, both ways.
	routeFiles   = "/files"
	routeCompose = routeFiles + "/compose"
)

func (d envd) registerFiles() {
	rest.Stream(d.api, rest.Operation{Method: http.MethodGet, Path: routeFiles, AnyQuery: true}, d.download)
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: routeFiles, AnyQuery: true}, d.upload)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: routeCompose, AnyQuery: true}, func(context.Context, rest.Call[rest.Raw]) (int, rest.None, error) {
		return 0, rest.None{}, never("composing of files; send the file in one request")
	})
}

// filesOf is the sandbox of a request for a file. Who has signed the address has no header
// that names it.
func (d envd) filesOf(r *http.Request, who tenant.Tenant) (instance.Info, error) {
	if err := checkUser(r); err != nil {
		return instance.Info{}, err
	}
	if at, err := d.targetOfRequest(r); err != nil || at.sandbox != "" {
		return d.named(r, who)
	}
	info, ok := d.signer(r.Method, r.URL.Query())
	if !ok || info.ID.Tenant != who.Name {
		return info, errSandboxGone
	}
	return info, nil
}

// download reads a file.
func (d envd) download(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	info, err := d.filesOf(r, c.Tenant)
	if err != nil {
		return err
	}
	name, err := pathOf(r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	return fileRefused(lending.ServeFile(w, r, d.instances, c.Tenant, info.ID.String(), name))
}

// written describes a file that was uploaded.
type written struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`
}

// upload writes files: the one that is the body, or those of a form. What came before a
// mistake is written.
func (d envd) upload(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	info, err := d.filesOf(r, c.Tenant)
	if err != nil {
		return err
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Metadata-") {
			return refused(strings.ToLower(name), "is not served here: files have no metadata")
		}
	}
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		plain, err := gzip.NewReader(r.Body)
		if err != nil {
			return refused("body", "is not compressed by gzip, as its Content-Encoding says")
		}
		r.Body = io.NopCloser(plain)
	default:
		return rest.BadRequest(http.StatusNotAcceptable, "The body must not be compressed otherwise than by gzip.")
	}
	all := []written{}
	take := func(name string, content io.Reader) error {
		target, err := pathOf(name)
		if err != nil {
			return err
		}
		file, err := lending.WriteFile(r.Context(), d.instances, c.Tenant, info.ID.String(), sdk.WriteFileRequest{Path: target, MakeParents: true}, content)
		if err != nil {
			return fileRefused(err)
		}
		all = append(all, written{path.Base(file.Path), file.Path, "file"})
		return nil
	}
	if err := d.eachFile(r, take); err != nil {
		return err
	}
	return sendAs(w, "text/plain; charset=utf-8", all) // as with envd, though it is JSON
}

// fileRefused gives the refusal of a file the status that clients know, where there is no
// room for it, and where a directory is in its place, or a file in that of a directory.
func fileRefused(err error) error {
	coded, ok := errors.AsType[*sdk.Error](err)
	switch {
	case ok && coded.Code == sdk.CodeQuotaExceeded && coded.RetryAfter == 0:
		return &rest.Error{Code: coded.Code, Status: http.StatusInsufficientStorage, Detail: coded.Message}
	case ok && coded.Code == sdk.CodeConflict:
		return &rest.Error{Code: coded.Code, Status: http.StatusBadRequest, Detail: coded.Message}
	default:
		return err
	}
}

// eachFile calls take for each file of an upload.
func (d envd) eachFile(r *http.Request, take func(name string, content io.Reader) error) error {
	name := r.URL.Query().Get("path")
	mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch mediaType {
	case lending.MediaBytes:
		if name == "" {
			return refused("path", "is required")
		}
		return take(name, r.Body)
	case "multipart/form-data":
	default:
		return refused("body", "must be a form of the type multipart/form-data, or of the type %s", lending.MediaBytes)
	}
	form, err := r.MultipartReader()
	if err != nil {
		return errForm
	}
	for files := 0; ; files++ {
		part, err := form.NextRawPart() // a transfer encoding is no part of a file
		// A form that breaks off wraps io.EOF, and one that ends does not.
		ended := err == io.EOF //nolint:errorlint
		switch {
		case ended && files > 0:
			return nil
		case ended:
			return refused("body", "has no part named file")
		case err != nil:
			return errForm
		case part.FormName() != "file":
			return refused("body", "must have parts named file alone")
		}
		target := name
		if target == "" {
			// The name has its directories, which Part.FileName would take away.
			_, disposition, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if target = disposition["filename"]; target == "" {
				return refused("path", "is required, or a filename in each part")
			}
		} else if files > 0 {
			return refused("path", "is for one file; leave it out, and name each file by its filename")
		}
		if err := take(target, part); err != nil {
			return err
		}
	}
}

var errForm = refused("body", "is not a whole form of the type multipart/form-data")

// permissions are bits as envd writes them: as ls does, but for links.
func permissions(kind sdk.FileType, mode fs.FileMode) string {
	letter := "-"
	switch kind {
	case sdk.FileDirectory:
		letter = "d"
	case sdk.FileSymlink:
		letter = "L"
	}
	return letter + mode.Perm().String()[1:]
}
