package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
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
	listDirRequest struct {
		Path  string `json:"path"`
		Depth int    `json:"depth"`
	}
	listDirResponse struct {
		Entries []entry `json:"entries,omitempty"`
	}
	moveRequest struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
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

// listDir lists what is below a directory, as deep as is asked.
func (e *envd) listDir(r *http.Request, req listDirRequest) (resp listDirResponse, err error) {
	root, err := e.pathOf(r, pathRequest{req.Path})
	if err != nil {
		return resp, err
	}
	switch info, err := os.Stat(root); {
	case err != nil:
		return resp, rpcErrorf("not_found", fmt.Sprintf("path not found: %v", err))
	case !info.IsDir():
		return resp, rpcErrorf("invalid_argument", "path is not a directory: "+root)
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		found, err := describe(path)
		if err != nil {
			return err
		}
		resp.Entries = append(resp.Entries, found)
		below := strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
		if d.IsDir() && strings.Count(below, "/")+1 >= max(req.Depth, 1) {
			return fs.SkipDir
		}
		return nil
	})
	return resp, err
}

func (e *envd) move(r *http.Request, req moveRequest) (resp entryResponse, err error) {
	from, err := e.pathOf(r, pathRequest{req.Source})
	if err != nil {
		return resp, err
	}
	to, err := e.pathOf(r, pathRequest{req.Destination})
	if err != nil {
		return resp, err
	}
	if _, err := os.Lstat(from); err != nil {
		return resp, rpcErrorf("not_found", fmt.Sprintf("source file not found: %v", err))
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return resp, rpcErrorf("internal", err.Error())
	}
	if err := os.Rename(from, to); err != nil {
		return resp, rpcErrorf("internal", err.Error())
	}
	resp.Entry, err = describe(to)
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

// uploaded is a file that was written, as upload tells of it.
type uploaded struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`
}

// upload takes the body as it is, or the files of a multipart form: the one that the path
// of the query is for, or, without one, each that says its own path.
func (e *envd) upload(w http.ResponseWriter, r *http.Request) {
	path, ok := e.filePath(w, r)
	if !ok {
		return
	}
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind {
	case "application/octet-stream":
		if !e.since(0, 5, 7) {
			writeError(w, http.StatusInternalServerError, "error parsing multipart form: request Content-Type isn't multipart/form-data")
			return
		}
		if written, ok := take(w, path, r.Body); ok {
			tell(w, []uploaded{written})
		}
	case "multipart/form-data":
		form, err := r.MultipartReader()
		if err != nil {
			writeError(w, http.StatusBadRequest, err.Error())
			return
		}
		e.uploadForm(w, r, form, path)
	default:
		writeError(w, http.StatusBadRequest, "unsupported content type")
	}
}

func (e *envd) uploadForm(w http.ResponseWriter, r *http.Request, form *multipart.Reader, path string) {
	var all []uploaded
	for {
		part, err := form.NextPart()
		switch {
		case err == io.EOF && len(all) > 0: //nolint:errorlint // a form that breaks off wraps it
			tell(w, all)
			return
		case err != nil:
			writeError(w, http.StatusBadRequest, err.Error())
			return
		case part.FormName() != "file":
			writeError(w, http.StatusBadRequest, "there is no part file")
			return
		}
		to := path
		if !r.URL.Query().Has("path") { // the name has its directories, which FileName would take away
			_, disposition, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if to, err = resolve(disposition["filename"], "user"); err != nil {
				writeError(w, http.StatusBadRequest, err.Error())
				return
			}
		}
		written, ok := take(w, to, part)
		if !ok {
			return
		}
		all = append(all, written)
	}
}

// take writes a file, or the answer that refuses it.
func take(w http.ResponseWriter, path string, content io.Reader) (uploaded, bool) {
	if err := store(path, content); err != nil {
		status := http.StatusInternalServerError
		switch {
		case errors.Is(err, syscall.ENOSPC):
			status = http.StatusInsufficientStorage
		case errors.Is(err, syscall.EISDIR):
			status = http.StatusBadRequest
		}
		writeError(w, status, err.Error())
		return uploaded{}, false
	}
	return uploaded{filepath.Base(path), path, "file"}, true
}

// tell answers with JSON, which says that it is text.
func tell(w http.ResponseWriter, all []uploaded) {
	text, err := json.Marshal(all)
	if err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(text)
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
