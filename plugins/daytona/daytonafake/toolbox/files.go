package toolbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/shape"
)

// fileInfo is a file as the daemon tells of it.
type fileInfo struct {
	Name        string    `json:"name"`
	Path        string    `json:"path,omitempty"`
	IsDir       bool      `json:"isDir"`
	Size        int64     `json:"size"`
	ModTime     string    `json:"modTime"`
	ModifiedAt  time.Time `json:"modifiedAt"`
	Mode        string    `json:"mode"`
	Permissions string    `json:"permissions"`
	Owner       string    `json:"owner"`
	Group       string    `json:"group"`
}

func infoOf(info fs.FileInfo) fileInfo {
	about := fileInfo{
		Name: info.Name(), IsDir: info.IsDir(), Size: info.Size(), ModTime: info.ModTime().String(), ModifiedAt: info.ModTime(),
		Mode: info.Mode().String(), Permissions: fmt.Sprintf("%04o", info.Mode().Perm()),
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		about.Owner, about.Group = fmt.Sprint(stat.Uid), fmt.Sprint(stat.Gid)
	}
	return about
}

// trouble is what the daemon makes of an error of the file system.
func trouble(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &failure{http.StatusNotFound, "FILE_NOT_FOUND", err.Error()}
	case errors.Is(err, fs.ErrPermission):
		return &failure{http.StatusForbidden, "FILE_ACCESS_DENIED", err.Error()}
	}
	return badRequest("%v", err)
}

func (d *daemon) fileInfo(w http.ResponseWriter, r *http.Request) error {
	given, err := query(r, "path", "")
	if err != nil {
		return err
	}
	info, err := os.Stat(given["path"])
	if err != nil {
		return missing(w, err)
	}
	return answer(w, http.StatusOK, infoOf(info))
}

// list tells of what is in a directory, down to a depth.
func (d *daemon) list(w http.ResponseWriter, r *http.Request) error {
	given, err := query(r, "", "path depth")
	if err != nil {
		return err
	}
	root, depth := given["path"], 1
	if root == "" {
		root = d.config.Home
	}
	if text := given["depth"]; text != "" {
		if depth, err = strconv.Atoi(text); err != nil || depth < 1 {
			return badRequest("depth must be a whole number from 1")
		}
	}
	all, err := listed(root, depth, given["depth"] != "")
	if err != nil {
		return trouble(err)
	}
	return answer(w, http.StatusOK, all)
}

func listed(dir string, depth int, paths bool) ([]fileInfo, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	all := []fileInfo{}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			continue // it went away
		}
		about := infoOf(info)
		if paths {
			about.Path = filepath.Join(dir, entry.Name())
		}
		all = append(all, about)
		if entry.IsDir() && depth > 1 {
			below, err := listed(filepath.Join(dir, entry.Name()), depth-1, paths)
			if err != nil {
				return nil, err
			}
			all = append(all, below...)
		}
	}
	return all, nil
}

// modeOf reads permissions in octal digits.
func modeOf(text string) (fs.FileMode, error) {
	mode, err := strconv.ParseUint(text, 8, 12)
	if err != nil {
		return 0, badRequest("invalid mode %q", text)
	}
	return fs.FileMode(mode), nil
}

func (d *daemon) makeFolder(w http.ResponseWriter, r *http.Request) error {
	given, err := query(r, "path mode", "")
	if err != nil {
		return err
	}
	mode, err := modeOf(given["mode"])
	if err != nil {
		return err
	}
	if err := os.MkdirAll(given["path"], mode); err != nil {
		return trouble(err)
	}
	w.WriteHeader(http.StatusCreated)
	return nil
}

func (d *daemon) deleteFile(w http.ResponseWriter, r *http.Request) error {
	given, err := query(r, "path", "recursive")
	if err != nil {
		return err
	}
	info, err := os.Lstat(given["path"])
	if err != nil {
		return trouble(err)
	}
	if info.IsDir() && given["recursive"] != "true" {
		return badRequest("cannot delete a directory without recursive")
	}
	if err := os.RemoveAll(given["path"]); err != nil {
		return trouble(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (d *daemon) move(_ http.ResponseWriter, r *http.Request) error {
	given, err := query(r, "source destination", "")
	if err != nil {
		return err
	}
	if err := os.Rename(given["source"], given["destination"]); err != nil {
		return trouble(err)
	}
	return nil
}

// permit changes the mode of a file, and its owner and group by their numbers.
func (d *daemon) permit(_ http.ResponseWriter, r *http.Request) error {
	given, err := query(r, "path", "owner group mode")
	if err != nil {
		return err
	}
	if text := given["mode"]; text != "" {
		mode, err := modeOf(text)
		if err != nil {
			return err
		}
		if err := os.Chmod(given["path"], mode); err != nil {
			return trouble(err)
		}
	}
	ids := [2]int{-1, -1}
	for i, text := range []string{given["owner"], given["group"]} {
		if text == "" || text == "daytona" { // whose they are
			continue
		}
		if ids[i], err = strconv.Atoi(text); err != nil {
			return badRequest("there is no user or group %q", text)
		}
	}
	if err := os.Lchown(given["path"], ids[0], ids[1]); err != nil {
		return trouble(err)
	}
	return nil
}

// find looks for a text in files, line by line.
func (d *daemon) find(w http.ResponseWriter, r *http.Request) error {
	given, err := query(r, "path pattern", "")
	if err != nil {
		return err
	}
	found := []map[string]any{}
	err = filepath.WalkDir(given["path"], func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || bytes.IndexByte(text, 0) >= 0 {
			return nil //nolint:nilerr // it cannot be read, or is no text
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			if n++; strings.Contains(line, given["pattern"]) {
				found = append(found, map[string]any{"file": path, "line": n, "content": strings.TrimSuffix(line, "\n")})
			}
		}
		return nil
	})
	if err != nil {
		return trouble(err)
	}
	return answer(w, http.StatusOK, found)
}

// search looks for names of files by a pattern.
func (d *daemon) search(w http.ResponseWriter, r *http.Request) error {
	given, err := query(r, "path pattern", "")
	if err != nil {
		return err
	}
	found := []string{}
	err = filepath.WalkDir(given["path"], func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fits, err := filepath.Match(given["pattern"], entry.Name())
		if fits {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		return trouble(err)
	}
	return answer(w, http.StatusOK, map[string]any{"files": found})
}

var replacement = shape.Object{Needed: map[string]shape.Shape{
	"files": shape.List{Of: some}, "pattern": some, "newValue": shape.Text{},
}}

// replace puts one text for another in files. It does not say how often.
func (d *daemon) replace(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Files             []string
		Pattern, NewValue string
	}
	if err := read(r, replacement, &req); err != nil {
		return err
	}
	results := []map[string]any{}
	for _, path := range req.Files {
		result := map[string]any{"file": path, "success": true}
		if err := rewrite(path, req.Pattern, req.NewValue); err != nil {
			result["success"], result["error"] = false, err.Error()
		}
		results = append(results, result)
	}
	return answer(w, http.StatusOK, results)
}

func rewrite(path, pattern, value string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, bytes.ReplaceAll(text, []byte(pattern), []byte(value)), info.Mode())
}

var paths = shape.Object{Needed: map[string]shape.Shape{"paths": shape.List{Of: some}}}

// bulkDownload answers with a part for each file: file, or error with the reason in JSON.
func (d *daemon) bulkDownload(w http.ResponseWriter, r *http.Request) error {
	var req struct{ Paths []string }
	if err := read(r, paths, &req); err != nil {
		return err
	}
	if len(req.Paths) == 0 {
		return badRequest("paths must not be empty")
	}
	parts := multipart.NewWriter(w)
	w.Header().Set("Content-Type", parts.FormDataContentType())
	for _, path := range req.Paths {
		kind, name := "application/octet-stream", "file"
		text, err := os.ReadFile(path)
		if err != nil {
			f, _ := trouble(err).(*failure) //nolint:errorlint // it is
			kind, name = "application/json", "error"
			text, _ = json.Marshal(map[string]any{"statusCode": f.status, "code": f.code, "message": f.message, "source": source})
		}
		part, err := parts.CreatePart(textproto.MIMEHeader{
			"Content-Disposition": {fmt.Sprintf("form-data; name=%q; filename=%q", name, path)}, "Content-Type": {kind},
		})
		if err == nil {
			_, err = part.Write(text)
		}
		if err != nil {
			return nil //nolint:nilerr // the client has gone
		}
	}
	_ = parts.Close() // the client may have gone
	return nil
}

// upload takes one file.
func (d *daemon) upload(w http.ResponseWriter, r *http.Request) error {
	given, err := query(r, "path", "")
	if err != nil {
		return err
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return badRequest("invalid multipart form: %v", err)
	}
	part, err := parts.NextPart()
	if err != nil || part.FormName() != "file" {
		return badRequest("file is required")
	}
	if _, err := save(part, given["path"]); err != nil {
		return trouble(err)
	}
	return answer(w, http.StatusOK, map[string]string{"name": filepath.Base(given["path"]), "path": given["path"], "type": "file"})
}
