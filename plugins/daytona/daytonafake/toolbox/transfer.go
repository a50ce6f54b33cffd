package toolbox

import (
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
)

var uploadPart = regexp.MustCompile(`^files\[([0-9]+)\]\.(path|file)$`)

type uploaded struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

// bulkUpload takes files in pairs of parts, of which the path comes first.
func (d *daemon) bulkUpload(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r, "", ""); err != nil {
		return err
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return badRequest("invalid multipart form: %v", err)
	}
	paths := map[string]string{}
	files, problems := []uploaded{}, []string{}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return badRequest("reading multipart: %v", err)
		}
		m := uploadPart.FindStringSubmatch(part.FormName())
		switch {
		case m == nil:
			problems = append(problems, fmt.Sprintf("unknown part %q", part.FormName()))
		case m[2] == "path":
			text, err := io.ReadAll(part)
			if err != nil {
				return badRequest("%v", err)
			}
			paths[m[1]] = string(text)
		case paths[m[1]] == "":
			problems = append(problems, fmt.Sprintf("file %s has no path before it", m[1]))
		default:
			n, err := save(part, paths[m[1]])
			if err != nil {
				problems = append(problems, err.Error())
				continue
			}
			files = append(files, uploaded{paths[m[1]], n})
		}
	}
	if len(files)+len(problems) < len(paths) {
		problems = append(problems, "a path has no file")
	}
	if len(problems) > 0 || len(files) == 0 {
		return answer(w, http.StatusBadRequest, map[string]any{"errors": problems, "files": files})
	}
	return answer(w, http.StatusOK, map[string]any{"files": files})
}

// save writes a file, and makes the directories above it.
func save(part *multipart.Part, path string) (int64, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return 0, err
	}
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(file, part)
	return n, errors.Join(err, file.Close())
}

// download answers the bytes of a file. Where there is none the answer is empty.
func (d *daemon) download(w http.ResponseWriter, r *http.Request) error {
	given, err := query(r, "path", "")
	if err != nil {
		return err
	}
	file, err := os.Open(given["path"])
	if err != nil {
		return missing(w, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return badRequest("path must be a file")
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", fmt.Sprint(info.Size()))
	w.Header().Set("Content-Disposition", "attachment; filename="+filepath.Base(given["path"]))
	_, _ = io.CopyN(w, file, info.Size())
	return nil
}

// missing is the answer of some calls about a path that is not there: it has no body.
func missing(w http.ResponseWriter, err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		w.WriteHeader(http.StatusNotFound)
		return nil
	case errors.Is(err, os.ErrPermission):
		return &failure{http.StatusForbidden, "FILE_ACCESS_DENIED", err.Error()}
	}
	return badRequest("%v", err)
}
