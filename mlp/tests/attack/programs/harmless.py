"""What the victim does meanwhile: an ordinary job, which writes and reports."""

import mlp_report

with open("result", "w") as file:
    file.write("done")
mlp_report.report(epoch=1, accuracy=0.5, loss=0.5, progress=100)
