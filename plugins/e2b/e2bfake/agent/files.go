package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

type (
	pathRequest struct {
		Path string `json:"path"`
	}
	entry struct {
		Name          string `json:"name,omitempty"`
		Type          string `json:"type,omitempty"`
		Path          string `json:"path,omitempty"`
		Size          int64  `json:"size,omitempty,string"`
		Mode          uint32 `json:"mode,omitempty"`
		Permissions   string `json:"permissions,omitempty"`
		Owner         string `json:"owner,omitempty"`
		Group         string `json:"group,omitempty"`
		ModifiedTime  string `json:"modifiedTime,omitempty"`
		SymlinkTarget string `json:"symlinkTarget,omitempty"`
	}
	entryResponse struct {
		Entry entry `json:"entry"`
	}
)

// resolve makes a path absolute: it may be relative to the home of the user.
func resolve(path, user string) (string, error) {
	switch {
	case path == "":
		return home(user), nil
	case path == "~" || strings.HasPrefix(path, "~/"):
		return filepath.Join(home(user), path[1:]), nil
	case strings.HasPrefix(path, "~"):
		return "", rpcErrorf("invalid_argument", "cannot expand user-specific home dir")
	case filepath.IsAbs(path):
		return filepath.Clean(path), nil
	default:
		return filepath.Join(home(user), path), nil
	}
}

func describe(path string) (entry, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return entry{}, rpcErrorf("not_found", fmt.Sprintf("path not found: %v", err))
	}
	e := entry{
		Name: info.Name(), Path: path, Size: info.Size(), Mode: uint32(info.Mode().Perm()), Permissions: info.Mode().String(),
		Owner: "user", Group: "user", ModifiedTime: info.ModTime().UTC().Format(time.RFC3339Nano),
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if e.SymlinkTarget, err = os.Readlink(path); err != nil {
			return entry{}, err
		}
		if info, err = os.Stat(path); err != nil {
			return e, nil //nolint:nilerr // a broken link has no type
		}
	}
	switch {
	case info.IsDir():
		e.Type = "FILE_TYPE_DIRECTORY"
	case info.Mode().IsRegular():
		e.Type = "FILE_TYPE_FILE"
	}
	return e, nil
}

func (e *envd) stat(r *http.Request, req pathRequest) (resp entryResponse, err error) {
	path, err := e.pathOf(r, req)
	if err != nil {
		return resp, err
	}
	resp.Entry, err = describe(path)
	return resp, err
}

func (e *envd) makeDir(r *http.Request, req pathRequest) (resp entryResponse, err error) {
	path, err := e.pathOf(r, req)
	if err != nil {
		return resp, err
	}
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return resp, rpcErrorf("already_exists", "directory already exists: "+path)
		}
		return resp, rpcErrorf("invalid_argument", "path already exists but it is not a directory: "+path)
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return resp, rpcErrorf("internal", err.Error())
	}
	resp.Entry, err = describe(path)
	return resp, err
}

func (e *envd) remove(r *http.Request, req pathRequest) (empty, error) {
	path, err := e.pathOf(r, req)
	if err != nil {
		return empty{}, err
	}
	return empty{}, os.RemoveAll(path)
}

func (e *envd) pathOf(r *http.Request, req pathRequest) (string, error) {
	user, err := e.user(r)
	if err != nil {
		return "", err
	}
	return resolve(req.Path, user)
}

// filePath is the path that a call of /files asks for.
func (e *envd) filePath(w http.ResponseWriter, r *http.Request) (string, bool) {
	query := r.URL.Query()
	user, err := e.knownUser(query.Get("username"), query.Has("username"))
	if err != nil {
		writeError(w, http.StatusUnauthorized, err.Error())
		return "", false
	}
	path, err := resolve(query.Get("path"), user)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return "", false
	}
	return path, true
}

func (e *envd) download(w http.ResponseWriter, r *http.Request) {
	path, ok := e.filePath(w, r)
	if !ok {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		status := http.StatusInternalServerError
		if errors.Is(err, fs.ErrNotExist) {
			status = http.StatusNotFound
		}
		writeError(w, status, err.Error())
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		writeError(w, http.StatusBadRequest, fmt.Sprintf("path '%s' is a directory", path))
		return
	}
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": filepath.Base(path)}))
	w.Header().Set("Vary", "Accept-Encoding")
	http.ServeContent(w, r, path, info.ModTime(), f)
}

// upload takes the body as it is; of multipart forms it takes the first file.
func (e *envd) upload(w http.ResponseWriter, r *http.Request) {
	path, ok := e.filePath(w, r)
	if !ok {
		return
	}
	var content io.Reader = r.Body
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind {
	case "application/octet-stream":
		if !e.since(0, 5, 7) {
			writeError(w, http.StatusInternalServerError, "error parsing multipart form: request Content-Type isn't multipart/form-data")
			return
		}
	case "multipart/form-data":
		form, err := r.MultipartReader()
		if err != nil {
			writeError(w, http.StatusBadRequest, err.Error())
			return
		}
		part, err := form.NextPart()
		if err != nil {
			writeError(w, http.StatusBadRequest, err.Error())
			return
		}
		if part.FormName() != "file" {
			writeError(w, http.StatusBadRequest, "there is no part file")
			return
		}
		content = part
	default:
		writeError(w, http.StatusBadRequest, "unsupported content type")
		return
	}
	if err := store(path, content); err != nil {
		status := http.StatusInternalServerError
		switch {
		case errors.Is(err, syscall.ENOSPC):
			status = http.StatusInsufficientStorage
		case errors.Is(err, syscall.EISDIR):
			status = http.StatusBadRequest
		}
		writeError(w, status, err.Error())
		return
	}
	// It is JSON, and says that it is text.
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintf(w, `[{"name":%q,"path":%q,"type":"file"}]`, filepath.Base(path), path)
}

func store(path string, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
