module slicewise.io/bench/nullextender

go 1.24
