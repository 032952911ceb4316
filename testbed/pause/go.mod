module soloist/testbed/pause

go 1.26.0
