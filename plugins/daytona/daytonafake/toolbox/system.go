package toolbox

import (
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// listening are the ports on which something listens.
func listening() []int {
	ports := []int{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // a machine without IPv6
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 4 || fields[3] != "0A" {
				continue
			}
			_, port, _ := strings.Cut(fields[1], ":")
			if n, err := strconv.ParseUint(port, 16, 16); err == nil && !slices.Contains(ports, int(n)) {
				ports = append(ports, int(n))
			}
		}
	}
	slices.Sort(ports)
	return ports
}

// The daemon tells of these ports alone.
const (
	firstPort = 3000
	lastPort  = 9999
)

func (d *daemon) ports(w http.ResponseWriter, _ *http.Request) error {
	ports := slices.DeleteFunc(listening(), func(port int) bool { return port < firstPort || port > lastPort })
	return answer(w, http.StatusOK, map[string]any{"ports": ports})
}

func (d *daemon) portInUse(w http.ResponseWriter, r *http.Request) error {
	port, err := strconv.Atoi(r.PathValue("port"))
	if err != nil || port < firstPort || port > lastPort {
		return badRequest("port must be from %d to %d", firstPort, lastPort)
	}
	return answer(w, http.StatusOK, map[string]bool{"isInUse": slices.Contains(listening(), port)})
}

func (d *daemon) metrics(w http.ResponseWriter, _ *http.Request) error {
	var memory unix.Sysinfo_t
	var disk unix.Statfs_t
	if err := unix.Sysinfo(&memory); err != nil {
		return err
	}
	if err := unix.Statfs("/", &disk); err != nil {
		return err
	}
	block := uint64(disk.Bsize)
	return answer(w, http.StatusOK, map[string]any{
		"cpuCount": runtime.NumCPU(), "cpuUsedPct": 1.5, "timestamp": time.Now().UTC(), "timestampUnix": time.Now().Unix(),
		"memTotal": memory.Totalram, "memUsed": memory.Totalram - memory.Freeram, "memCache": memory.Bufferram,
		"diskTotal": disk.Blocks * block, "diskFree": disk.Bavail * block, "diskUsed": (disk.Blocks - disk.Bfree) * block,
	})
}
